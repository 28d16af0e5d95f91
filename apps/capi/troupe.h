/* Troupe for programs in C and for everything that can call C. One session is one rank of a training job in the calling
 * process; with RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and TROUPE_SECRET_FILE in the environment (or
 * under mpirun) it is one of several, which meet while they start.
 *
 * `rtrun app.toml -- ./program` starts a program as all ranks that cluster.nodes asks for.
 *
 * Every function that can fail returns a troupe_result; troupe_error() tells what was wrong and what to do. Nothing is
 * printed, no signal handler is installed, exit() is never called. Threads: a session's functions are for one thread at
 * a time, but for troupe_request_stop(), which is for any. Several sessions may live in one process.
 *
 * Tensors are DLPack's (dlpack/dlpack.h): in the memory of the host, row-major. Those that are handed out borrow the
 * session's memory, as long as each function says; their deleter, to be called once, frees the description alone. */
#ifndef TROUPE_H
#define TROUPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Grows when functions are added or troupe_options grows at its end; what is there stays as it is. */
#define TROUPE_ABI_VERSION 3

#if defined(__GNUC__)
#define TROUPE_API __attribute__((visibility("default")))
#else
#define TROUPE_API
#endif

struct DLManagedTensor;
typedef struct troupe_session troupe_session;

/* The positive ones are also rtrun's exit codes. */
typedef enum troupe_result {
  TROUPE_OVER = -1, /* no failure: the job has no more steps, or was ended */
  TROUPE_OK = 0,
  TROUPE_FAILED = 1,
  TROUPE_INVALID = 2,     /* an argument or a setting is wrong */
  TROUPE_ENVIRONMENT = 3, /* the machine lacks something */
  TROUPE_PEERS_LOST = 4
} troupe_result;

/* Sums over samples. */
typedef struct troupe_sums {
  double loss;
  uint64_t correct;
  uint64_t samples;
} troupe_sums;

/* A trainable tensor of a model of the app's own; starts as N(0, deviation^2), as zeros when that is 0. */
typedef struct troupe_parameter {
  const char* name;
  const uint64_t* extents;
  size_t extents_count;
  double deviation;
} troupe_parameter;

typedef struct troupe_options {
  size_t size;                 /* sizeof(troupe_options) */
  const char* file;            /* app.toml; NULL: the defaults */
  const char* const* settings; /* "a.b=c", on top of the file */
  size_t settings_count;
  /* A model whose gradients the app computes, instead of the one that the settings name; NULL: none. */
  const char* model;
  const troupe_parameter* parameters;
  size_t parameters_count;
  /* Not 0: the app has its own samples too, so many an epoch over all ranks; no data set is read. */
  uint64_t own_samples;
} troupe_options;

/* TROUPE_ABI_VERSION of the library, and "0.1.0". */
TROUPE_API uint32_t troupe_abi_version(void);
TROUPE_API const char* troupe_version(void);
/* Why the calling thread's last call failed; valid until its next call. Never NULL. */
TROUPE_API const char* troupe_error(void);

/* Joins the job and builds everything up to the first step. Everything in `options` may be gone afterwards. */
TROUPE_API troupe_result troupe_start(const troupe_options* options, troupe_session** session);
/* This rank, and how many there are. */
TROUPE_API troupe_result troupe_rank(const troupe_session* session, uint32_t* rank, uint32_t* ranks);

/* The next batch, the same one until its step is taken: of its first field of numbers, inputs [rows, features] f32 (bf16
 * in a bf16 job), and of its first one of labels, labels [rows] int32, of which those below 0 do not count. Valid until
 * the step is taken. Either place may be NULL, and is given NULL when there is no such field. */
TROUPE_API troupe_result troupe_next(troupe_session* session, struct DLManagedTensor** inputs,
                                     struct DLManagedTensor** labels);
/* The fields of that batch by index, each [rows, ...] of f32, bf16 or int32. Valid until the step
 * is taken. No batch: no fields; the name is NULL when there is no field of that index. */
TROUPE_API size_t troupe_field_count(const troupe_session* session);
TROUPE_API const char* troupe_field_name(const troupe_session* session, size_t index);
TROUPE_API troupe_result troupe_field(troupe_session* session, size_t index, struct DLManagedTensor** tensor);
/* Trains on that batch; the sums are those over all ranks (total may be NULL). */
TROUPE_API troupe_result troupe_step(troupe_session* session, troupe_sums* total);
/* A step with gradients that the app computed: f32 tensors in the order and of the shapes of the parameters, sums over
 * this rank's samples; they stay the caller's. NULL and 0: they were written into troupe_gradients() already. `own` are
 * this rank's sums, `total` (may be NULL) those over all ranks. */
TROUPE_API troupe_result troupe_exchange(troupe_session* session, struct DLManagedTensor* const* gradients,
                                         size_t gradients_count, const troupe_sums* own, troupe_sums* total);

TROUPE_API size_t troupe_tensor_count(const troupe_session* session);
/* NULL when there is no tensor of that index. Valid as long as the session. */
TROUPE_API const char* troupe_tensor_name(const troupe_session* session, size_t index);
/* Valid as long as the session. Parameters change in troupe_step and troupe_exchange alone, and are not to be written;
 * gradients are to be written before troupe_exchange. */
TROUPE_API troupe_result troupe_parameters(troupe_session* session, size_t index, struct DLManagedTensor** tensor);
TROUPE_API troupe_result troupe_gradients(troupe_session* session, size_t index, struct DLManagedTensor** tensor);

/* The run so far as JSON: rank, ranks, steps taken by this session, samples, epochs with loss, accuracy and reported values
 * (rank 0), the plan, notes that a person should read; after troupe_finish also the job's committed steps and how it ended. Valid until the session's next call. */
TROUPE_API troupe_result troupe_report(troupe_session* session, const char** json);
/* Reports a number under a name for people: rank 0's log (report.dir), log.csv beside it and troupe_report have, for each
 * line, the mean of what all ranks reported since the line before: the sum over all calls at all ranks, divided by the
 * number of calls. A call belongs to the step that this rank is at, from the troupe_next that gave its batch to the one
 * after; where the app does not call troupe_next, as with own_samples, to the troupe_exchange that follows, and behind
 * the last one to that. A value that is not finite makes the line's null. `name`: up to 64 characters of a-z, 0-9, '_',
 * '.', '/' and '-', no key that the log has by itself; 256 names at most. Not after troupe_finish. */
TROUPE_API troupe_result troupe_report_value(troupe_session* session, const char* name, double value);
/* Asks the whole job to end after the steps now under way. Any thread; a signal handler may not. */
TROUPE_API void troupe_request_stop(troupe_session* session);
/* Ends the loop: asks the job to end if it is not at its end, waits for the others, takes everything down. Tells how
 * the run ended. */
TROUPE_API troupe_result troupe_finish(troupe_session* session);
/* Gives everything back; a session that was not finished counts as lost for the others. NULL is fine. */
TROUPE_API void troupe_free(troupe_session* session);

#ifdef __cplusplus
}
#endif
#endif
