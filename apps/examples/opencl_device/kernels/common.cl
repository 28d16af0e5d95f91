// Definitions that the other kernels use. A stream's kernels first read its fault: when the stream has failed, they do
// nothing. Work groups have one item each, which processes a chunk alone in vectors of eight: this suits a CPU. A kernel
// for a GPU would divide the chunk among the items of a group.
#pragma OPENCL FP_CONTRACT OFF
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable

#define TASK kernel __attribute__((reqd_work_group_size(1, 1, 1))) void

// Memory is passed as a buffer and an offset in bytes: parts of an arena are aligned to 64 bytes, and a sub-buffer may need
// a larger alignment.
#define PLACE(name) global uchar *name##_base, ulong name##_offset
#define AT(type, name) ((global type *)(name##_base + name##_offset))

// The same as in stream_progress.hpp.
typedef struct {
  ulong code;
  ulong sequence;
  ulong where;
  ulong what;
} Fault;

#define FAULT global Fault *fault
#define RETURN_IF_ENDED                              \
  if (*(volatile global ulong *)&fault->code) return

// The first report is kept.
static void report(global Fault *fault, ulong code, ulong sequence, ulong where, ulong what) {
  if (atom_cmpxchg((volatile global ulong *)&fault->code, 0UL, 1UL) != 0UL) return;
  fault->sequence = sequence;
  fault->where = where;
  fault->what = what;
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  atom_xchg((volatile global ulong *)&fault->code, code);
}

// The same as troupe::StepSums.
typedef struct {
  double loss;
  ulong correct;
  ulong samples;
  ulong stop;
  ulong saving;
  double squares;
  ulong bad;
  ulong who;
} StepSums;

// As in troupe's square_sums.hpp, gradient_check.hpp and tensor_norms.hpp.
#define SQUARE_PIECE 2048UL
#define GRADIENT_STRANDS 2048
#define TENSOR_STRANDS 128

static double fold(double *numbers, uint count) {
  for (uint half_count = count / 2; half_count > 0; half_count /= 2)
    for (uint i = 0; i < half_count; ++i) numbers[i] += numbers[half_count + i];
  return numbers[0];
}

#define CHUNK_BYTES 65536UL
#define CHUNK_ELEMENTS 4096UL
