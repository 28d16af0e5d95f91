#pragma once

// Before a function whose arithmetic GPUs repeat: a compiler for them makes it for both, another one takes no notice.
#if defined(__CUDACC__)
#define TROUPE_ANY_PROCESSOR __host__ __device__
#else
#define TROUPE_ANY_PROCESSOR
#endif
