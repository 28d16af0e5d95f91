/* The training loop in C: the session's device computes. Arguments: app.toml, then settings such as train.steps=100. */
#include <dlpack/dlpack.h>
#include <stdio.h>
#include <troupe.h>

static int fail(void) {
  fprintf(stderr, "%s\n", troupe_error());
  return 1;
}

/* How many of the labels are even; shows how to read a batch's tensor. */
static int count_even(DLManagedTensor* labels) {
  const int32_t* numbers = labels->dl_tensor.data;
  int even = 0;
  for (int64_t row = 0; row < labels->dl_tensor.shape[0]; ++row) even += numbers[row] % 2 == 0;
  labels->deleter(labels);
  return even;
}

int main(int argc, char** argv) {
  troupe_options options = {.size = sizeof options, .file = argc > 1 ? argv[1] : NULL};
  options.settings = (const char* const*)argv + 2;
  options.settings_count = argc > 2 ? (size_t)argc - 2 : 0;
  troupe_session* session = NULL;
  if (troupe_start(&options, &session) != TROUPE_OK) return fail();

  uint64_t steps = 0, even = 0;
  DLManagedTensor* labels = NULL;
  while (troupe_next(session, NULL, &labels) == TROUPE_OK) {
    even += (uint64_t)count_even(labels);
    troupe_sums sums;
    if (troupe_step(session, &sums) != TROUPE_OK) break;
    if (++steps % 100 == 0 && sums.samples > 0)
      printf("step %llu: loss %g\n", (unsigned long long)steps, sums.loss / (double)sums.samples);
  }
  printf("%llu even digits seen\n", (unsigned long long)even);

  const int failed = troupe_finish(session) != TROUPE_OK && fail();
  const char* report = NULL;
  if (troupe_report(session, &report) == TROUPE_OK) puts(report);
  troupe_free(session);
  return failed;
}
