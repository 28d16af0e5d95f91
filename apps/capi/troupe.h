/* Troupe for programs in C and for everything that can call C. One session is one rank of a training job in the calling
 * process. With RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT and TROUPE_SECRET_FILE in the environment (or
 * under mpirun) it is one of several ranks, which connect while they start.
 *
 * `rtrun app.toml -- ./program` starts a program as each of the ranks of cluster.nodes.
 *
 * Every function that can fail returns a troupe_result; troupe_error() says what was wrong and what to do. Nothing is
 * printed, no signal handler is installed, exit() is never called. Threads: a session's functions may be called by one
 * thread at a time, except troupe_request_stop(), which any may call. A process may have several sessions. A child of
 * fork() cannot use its parent's sessions, and troupe_free() does nothing to them there; it may start its own.
 *
 * Tensors are DLPack's (dlpack/dlpack.h): in host memory, row-major. Tensors that a function returns borrow the
 * session's memory, for as long as the function says; call their deleter once: it frees only the description. */
#ifndef TROUPE_H
#define TROUPE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Increases when functions are added or fields are appended to troupe_options; existing ones are never changed. */
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
  TROUPE_OVER = -1, /* not a failure: the job has no more steps, or was ended */
  TROUPE_OK = 0,
  TROUPE_FAILED = 1,
  TROUPE_INVALID = 2,     /* an argument or a setting is wrong */
  TROUPE_ENVIRONMENT = 3, /* the machine lacks something */
  TROUPE_PEERS_LOST = 4
} troupe_result;

/* Sums over samples. With policies whose ranks do not exchange in every step, the total of a step without an exchange
 * has zeros, and its samples are in the total of the next exchange. */
typedef struct troupe_sums {
  double loss;
  uint64_t correct;
  uint64_t samples;
} troupe_sums;

/* A trainable tensor of a model of the app's own; initialized as N(0, deviation^2), or zeros if deviation is 0. */
typedef struct troupe_parameter {
  const char* name;
  const uint64_t* extents;
  size_t extents_count;
  double deviation;
} troupe_parameter;

typedef struct troupe_options {
  size_t size;                 /* sizeof(troupe_options) */
  const char* file;            /* app.toml; NULL: the defaults */
  const char* const* settings; /* "a.b=c", override the file */
  size_t settings_count;
  /* A model whose gradients the app computes, instead of the one that the settings name; NULL: none. */
  const char* model;
  const troupe_parameter* parameters;
  size_t parameters_count;
  /* Not 0: the app also has its own samples, this number per epoch over all ranks; no data set is read. */
  uint64_t own_samples;
} troupe_options;

/* TROUPE_ABI_VERSION of the library, and "0.1.0". */
TROUPE_API uint32_t troupe_abi_version(void);
TROUPE_API const char* troupe_version(void);
/* Why the calling thread's last call failed; valid until its next call. Never NULL. */
TROUPE_API const char* troupe_error(void);

/* Joins the job and builds everything for the first step. The memory in `options` is not used afterwards. */
TROUPE_API troupe_result troupe_start(const troupe_options* options, troupe_session** session);
/* This rank, and the number of ranks. */
TROUPE_API troupe_result troupe_rank(const troupe_session* session, uint32_t* rank, uint32_t* ranks);

/* The next batch, the same one until its step is taken. `inputs`: its first field of numbers, [rows, features] f32
 * (bf16 in a bf16 job). `labels`: its first field of labels, [rows] int32; labels below 0 do not count. Valid until the
 * step is taken. Either argument may be NULL; it gets NULL if there is no such field. */
TROUPE_API troupe_result troupe_next(troupe_session* session, struct DLManagedTensor** inputs,
                                     struct DLManagedTensor** labels);
/* The fields of that batch by index, each [rows, ...] of f32, bf16 or int32. Valid until the step
 * is taken. Without a batch there are no fields; the name is NULL if there is no field with that index. */
TROUPE_API size_t troupe_field_count(const troupe_session* session);
TROUPE_API const char* troupe_field_name(const troupe_session* session, size_t index);
TROUPE_API troupe_result troupe_field(troupe_session* session, size_t index, struct DLManagedTensor** tensor);
/* Trains on that batch; `total` (may be NULL) gets the sums over all ranks. */
TROUPE_API troupe_result troupe_step(troupe_session* session, troupe_sums* total);
/* A step with gradients that the app has computed: f32 tensors in the order and with the shapes of the parameters, sums
 * over this rank's samples; they remain the caller's. NULL and 0: they were written to troupe_gradients() already.
 * `own` has this rank's sums, `total` (may be NULL) gets those over all ranks. */
TROUPE_API troupe_result troupe_exchange(troupe_session* session, struct DLManagedTensor* const* gradients,
                                         size_t gradients_count, const troupe_sums* own, troupe_sums* total);

TROUPE_API size_t troupe_tensor_count(const troupe_session* session);
/* NULL if there is no tensor with that index. Valid as long as the session. */
TROUPE_API const char* troupe_tensor_name(const troupe_session* session, size_t index);
/* Valid as long as the session. Parameters change only in troupe_step and troupe_exchange, and must not be written;
 * gradients must be written before troupe_exchange. */
TROUPE_API troupe_result troupe_parameters(troupe_session* session, size_t index, struct DLManagedTensor** tensor);
TROUPE_API troupe_result troupe_gradients(troupe_session* session, size_t index, struct DLManagedTensor** tensor);

/* The run so far as JSON: rank, ranks, steps taken by this session, samples, epochs with loss, accuracy and reported
 * values (rank 0), the plan, notes for people; after troupe_finish also the job's committed steps and how it ended.
 * Valid until the session's next call. */
TROUPE_API troupe_result troupe_report(troupe_session* session, const char** json);
/* Reports a number under a name for people: each line of rank 0's log (report.dir), of log.csv beside it and of
 * troupe_report has the mean of the values that all ranks reported since the previous line: the sum over all calls at
 * all ranks, divided by the number of calls. A call belongs to the step that this rank is at, which lasts from the
 * troupe_next that returned its batch to the following one. If the app does not call troupe_next, as with own_samples,
 * a call belongs to the troupe_exchange that follows it, and after the last one to that. A value that is not finite
 * makes the line's value null. `name`: up to 64 characters of a-z, 0-9, '_', '.', '/' and '-', not a key of the log
 * itself; at most 256 names. Not after troupe_finish. */
TROUPE_API troupe_result troupe_report_value(troupe_session* session, const char* name, double value);
/* Asks the whole job to end after the steps that are in progress. Any thread, but not a signal handler. */
TROUPE_API void troupe_request_stop(troupe_session* session);
/* Ends the loop: asks the job to end unless it is at its end, waits for the others, ends everything. Returns how the
 * run ended. */
TROUPE_API troupe_result troupe_finish(troupe_session* session);
/* Frees the session; if it was not finished, the other ranks count this one as lost. NULL is allowed. */
TROUPE_API void troupe_free(troupe_session* session);

#ifdef __cplusplus
}
#endif
#endif
