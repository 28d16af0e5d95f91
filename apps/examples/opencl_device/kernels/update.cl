// The optimizers' rules, operation by operation as in troupe::update_element, so that the bits are the same: without
// contraction, with correctly rounded division and root, with denormals flushed (the program's build options).

enum { SGD, MOMENTUM, NESTEROV, ADAM, ADAMW, ADAGRAD, RMSPROP, RMSPROP_MOMENTUM, BLOCKS, LARS, LAMB, SWAP };  // as troupe::RuleKind

// The same as opencl::RuleArguments.
typedef struct {
  uint kind;
  float rate, decay, momentum, beta1, one_minus_beta1, beta2, one_minus_beta2, first_scale, second_scale, epsilon, look_ahead,
      trust;
  uint judged;
  double clip_norm;
} Rule;

// As troupe::gradient_scale.
static float gradient_scale(const Rule *r, global const StepSums *total) {
  if (r->kind == SWAP) return 1;
  if (total->samples == 0 || (r->judged && !isfinite(total->squares))) return 0;
  const double scale = 1.0 / (double)total->samples;
  if (r->clip_norm <= 0) return (float)scale;
  const double norm = sqrt(total->squares) * scale;
  return (float)(norm > r->clip_norm ? scale * (r->clip_norm / norm) : scale);
}

// Arithmetic and bf16 image (round to nearest even, NaN stays NaN) of one element, or of eight.
#define DEFINE_RULE(REAL, WORD, HALF, TO_HALF)                                                                        \
  static void apply_##REAL(const Rule *r, float scale, REAL sum, REAL *p, REAL *s0, REAL *s1) {                       \
    REAL g = sum * scale;                                                                                             \
    if (r->kind != ADAMW && r->kind != LAMB) g += r->decay * *p;                                                      \
    if (r->kind == SGD) {                                                                                             \
      *p -= r->rate * g;                                                                                              \
    } else if (r->kind == MOMENTUM) {                                                                                 \
      *s0 = r->momentum * *s0 + g;                                                                                    \
      *p -= r->rate * *s0;                                                                                            \
    } else if (r->kind == NESTEROV) {                                                                                 \
      *s0 = r->momentum * *s0 + g;                                                                                    \
      *p -= r->rate * (g + r->momentum * *s0);                                                                        \
    } else if (r->kind == ADAGRAD) {                                                                                  \
      *s0 += g * g;                                                                                                   \
      *p -= r->rate * g / (sqrt(*s0) + r->epsilon);                                                                   \
    } else if (r->kind == RMSPROP) {                                                                                  \
      *s0 = r->beta2 * *s0 + r->one_minus_beta2 * (g * g);                                                            \
      *p -= r->rate * g / (sqrt(*s0) + r->epsilon);                                                                   \
    } else if (r->kind == RMSPROP_MOMENTUM) {                                                                         \
      *s0 = r->beta2 * *s0 + r->one_minus_beta2 * (g * g);                                                            \
      *s1 = r->momentum * *s1 + g / (sqrt(*s0) + r->epsilon);                                                         \
      *p -= r->rate * *s1;                                                                                            \
    } else if (r->kind == BLOCKS) {                                                                                   \
      *s0 = r->momentum * *s0 + r->rate * g;                                                                          \
      *p -= *s0 + r->look_ahead * *s0;                                                                                \
    } else if (r->kind == LARS) {                                                                                     \
      *s0 = r->momentum * *s0 + r->rate * g;                                                                          \
      *p -= *s0;                                                                                                      \
    } else if (r->kind == LAMB) {                                                                                     \
      *s0 = r->beta1 * *s0 + r->one_minus_beta1 * g;                                                                  \
      *s1 = r->beta2 * *s1 + r->one_minus_beta2 * (g * g);                                                            \
      *p -= r->rate *                                                                                                 \
            (*s0 * r->first_scale / (sqrt(*s1 * r->second_scale) + r->epsilon) + r->decay * *p);                      \
    } else if (r->kind == SWAP) {                                                                                     \
      g = *p;                                                                                                         \
      *p = *s0;                                                                                                       \
      *s0 = g;                                                                                                        \
    } else {                                                                                                          \
      if (r->kind == ADAMW) *p -= r->decay * *p;                                                                      \
      *s0 = r->beta1 * *s0 + r->one_minus_beta1 * g;                                                                  \
      *s1 = r->beta2 * *s1 + r->one_minus_beta2 * (g * g);                                                            \
      *p -= r->rate * *s0 / (sqrt(*s1 * r->second_scale) + r->epsilon);                                               \
    }                                                                                                                 \
  }                                                                                                                   \
  static HALF image_##REAL(REAL value) {                                                                              \
    const WORD bits = as_##WORD(value);                                                                               \
    const WORD rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;                                                \
    const WORD nan = (bits >> 16) | 0x40U;                                                                            \
    return TO_HALF((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);                                               \
  }
DEFINE_RULE(float, uint, ushort, convert_ushort)
DEFINE_RULE(float8, uint8, ushort8, convert_ushort8)

#define BLOCK 1024UL  // UpdateJournal::kBlockElements

// A stripe; absent memory is not touched.
typedef struct {
  global const float *first, *second;  // contributions; their number is `parts`
  global float *p, *s0, *s1;           // the number of states is `states`
  global ushort *bf16;                 // only if `image`
  uint parts, states, image;
  global const ulong *ranges;  // first and count of elements without decay, in the group; `range_count` of them
  uint range_count;
  ulong first_element;
  global const ulong *scaled;  // likewise if the learning rate depends on norms; `scaled_count` of them
  global float *squares;       // two numbers for each: of its weights, and of its update
  uint scaled_count;
} Stripe;

static void update_alike(const Rule *rule, float scale, const Stripe *at, ulong i, ulong end) {
  for (; i + 8 <= end; i += 8) {
    float8 sum = vload8(0, at->first + i), p = vload8(0, at->p + i), s0 = 0, s1 = 0;
    if (at->parts > 1) sum += vload8(0, at->second + i);
    if (at->states > 0) s0 = vload8(0, at->s0 + i);
    if (at->states > 1) s1 = vload8(0, at->s1 + i);
    apply_float8(rule, scale, sum, &p, &s0, &s1);
    vstore8(p, 0, at->p + i);
    if (at->states > 0) vstore8(s0, 0, at->s0 + i);
    if (at->states > 1) vstore8(s1, 0, at->s1 + i);
    if (at->image) vstore8(image_float8(p), 0, at->bf16 + i);
  }
  for (; i < end; ++i) {
    float sum = at->first[i], p = at->p[i], s0 = 0, s1 = 0;
    if (at->parts > 1) sum += at->second[i];
    if (at->states > 0) s0 = at->s0[i];
    if (at->states > 1) s1 = at->s1[i];
    apply_float(rule, scale, sum, &p, &s0, &s1);
    at->p[i] = p;
    if (at->states > 0) at->s0[i] = s0;
    if (at->states > 1) at->s1[i] = s1;
    if (at->image) at->bf16[i] = image_float(p);
  }
}

// As troupe::trust_ratio.
static float trust_ratio(const Rule *r, global const float *squares) {
  const double weights = sqrt((double)squares[0]), update = sqrt((double)squares[1]);
  if (!(weights > 0 && update > 0)) return 1;
  if (r->kind == LARS) return (float)((double)r->trust * weights / (update + (double)r->decay * weights));
  return (float)(weights / update);
}

// Divides a range into pieces inside and outside of tensors whose learning rate depends on norms.
static void update_scaled(const Rule *rule, float scale, const Stripe *at, ulong i, ulong end) {
  for (uint t = 0; t < at->scaled_count && i < end; ++t) {
    const ulong from = at->scaled[2 * t], to = from + at->scaled[2 * t + 1];
    if (to <= at->first_element + i) continue;
    if (from >= at->first_element + end) break;
    const ulong begin = from > at->first_element + i ? from - at->first_element : i;
    const ulong stop = min(end, to - at->first_element);
    update_alike(rule, scale, at, i, begin);
    Rule here = *rule;
    here.rate *= trust_ratio(rule, at->squares + 2 * t);
    update_alike(&here, scale, at, begin, stop);
    i = stop;
  }
  update_alike(rule, scale, at, i, end);
}

// Divides a range into pieces with and without weight decay, as troupe::for_each_piece.
static void update_elements(const Rule *rule, float scale, const Stripe *at, ulong i, ulong end) {
  Rule undecayed = *rule;
  undecayed.decay = 0;
  for (uint r = 0; r < at->range_count && i < end; ++r) {
    const ulong from = at->ranges[2 * r], to = from + at->ranges[2 * r + 1];
    if (to <= at->first_element + i) continue;
    if (from >= at->first_element + end) break;
    const ulong begin = from > at->first_element + i ? from - at->first_element : i;
    const ulong stop = min(end, to - at->first_element);
    update_scaled(rule, scale, at, i, begin);
    update_scaled(&undecayed, scale, at, begin, stop);
    i = stop;
  }
  update_scaled(rule, scale, at, i, end);
}

// Adds the squares of a range to the strands, as troupe::add_tensor_squares.
static void add_range_squares(const Rule *r, float scale, const Stripe *at, ulong begin, ulong end,
                              double *weight_strands, double *update_strands) {
  for (ulong first = begin; first < end; first += SQUARE_PIECE) {
    double weights[16], update[16];
    for (uint lane = 0; lane < 16; ++lane) weights[lane] = update[lane] = 0;
    for (ulong i = first; i < min(first + SQUARE_PIECE, end); ++i) {
      const uint lane = (uint)((i - first) % 16);
      const float p = at->p[i], g = at->first[i] * scale;
      float move = g;
      if (r->kind == LAMB) {
        const float m = r->beta1 * at->s0[i] + r->one_minus_beta1 * g;
        const float v = r->beta2 * at->s1[i] + r->one_minus_beta2 * (g * g);
        move = m * r->first_scale / (sqrt(v * r->second_scale) + r->epsilon) + r->decay * p;
      }
      weights[lane] += (double)p * (double)p;
      update[lane] += (double)move * (double)move;
    }
    const ulong strand = (first - begin) / SQUARE_PIECE % TENSOR_STRANDS;
    weight_strands[strand] += fold(weights, 16);
    update_strands[strand] += fold(update, 16);
  }
}

#define STRIPE_ARGUMENTS                                                                                             \
  PLACE(total), PLACE(first), PLACE(second), PLACE(p), PLACE(s0), PLACE(s1), PLACE(bf16), uint parts, uint states,   \
      uint image, PLACE(ranges), uint range_count, ulong first_element, PLACE(scaled), PLACE(squares), uint scaled_count, \
      ulong count, Rule rule
#define STRIPE                                                                                                        \
  {AT(float, first), AT(float, second), AT(float, p), AT(float, s0), AT(float, s1), AT(ushort, bf16), parts, states, \
   image, AT(ulong, ranges), range_count, first_element, AT(ulong, scaled), AT(float, squares), scaled_count}

// Stream::add_update_squares: each item measures one tensor. `first` is the sum of the gradients.
TASK add_update_squares(FAULT, STRIPE_ARGUMENTS) {
  RETURN_IF_ENDED;
  const float scale = gradient_scale(&rule, AT(StepSums, total));
  if (scale == 0) return;
  const Stripe at = STRIPE;
  const uint t = get_global_id(0);
  const ulong from = at.scaled[2 * t], to = from + at.scaled[2 * t + 1];
  if (to <= at.first_element || from >= at.first_element + count) return;
  ulong i = from > at.first_element ? from - at.first_element : 0;
  const ulong end = min(count, to - at.first_element);
  Rule undecayed = rule;
  undecayed.decay = 0;
  double weights[TENSOR_STRANDS], update[TENSOR_STRANDS];
  for (uint s = 0; s < TENSOR_STRANDS; ++s) weights[s] = update[s] = 0;
  for (uint r = 0; r < at.range_count && i < end; ++r) {
    const ulong left = at.ranges[2 * r], right = left + at.ranges[2 * r + 1];
    if (right <= at.first_element + i) continue;
    if (left >= at.first_element + end) break;
    const ulong begin = left > at.first_element + i ? left - at.first_element : i;
    const ulong stop = min(end, right - at.first_element);
    add_range_squares(&rule, scale, &at, i, begin, weights, update);
    add_range_squares(&undecayed, scale, &at, begin, stop, weights, update);
    i = stop;
  }
  add_range_squares(&rule, scale, &at, i, end, weights, update);
  at.squares[2 * t] += (float)fold(weights, TENSOR_STRANDS);
  at.squares[2 * t + 1] += (float)fold(update, TENSOR_STRANDS);
}

// Each item updates one block. It cannot be restarted.
TASK update_blocks(FAULT, STRIPE_ARGUMENTS) {
  RETURN_IF_ENDED;
  const float scale = gradient_scale(&rule, AT(StepSums, total));
  if (scale == 0) return;
  const Stripe at = STRIPE;
  const ulong begin = get_global_id(0) * BLOCK;
  update_elements(&rule, scale, &at, begin, min(begin + BLOCK, count));
}

static void copy_block(global float *to, global const float *from, ulong count) {
  ulong i = 0;
  for (; i + 8 <= count; i += 8) vstore8(vload8(0, from + i), 0, to + i);
  for (; i < count; ++i) to[i] = from[i];
}

// Copies a block to its undo block, or back: parameters, then states.
static void undo_block(const Stripe *at, global float *undo, ulong block, ulong count, bool back) {
  const ulong begin = block * BLOCK, size = min(BLOCK, count - begin);
  undo += (block % 2) * BLOCK * (1 + at->states);
  global float *const arrays[3] = {at->p, at->s0, at->s1};
  for (uint a = 0; a <= at->states; ++a) {
    global float *const saved = undo + a * BLOCK, *const here = arrays[a] + begin;
    copy_block(back ? here : saved, back ? saved : here, size);
  }
}

// All earlier writes are in memory before the word is, and later ones come after it: a rank that finishes the pass finds a
// prefix of it.
static void publish(volatile global ulong *progress, ulong number, ulong done) {
  mem_fence(CLK_GLOBAL_MEM_FENCE);
  atom_xchg(progress, number << 24 | (done + 1));
  mem_fence(CLK_GLOBAL_MEM_FENCE);
}

// The pass of troupe::run_update_pass, with its journal, by a single item: so its order is the order of the program.
TASK update_pass(FAULT, STRIPE_ARGUMENTS, PLACE(journal), ulong number, ulong sequence) {
  RETURN_IF_ENDED;
  const float scale = gradient_scale(&rule, AT(StepSums, total));
  if (scale == 0) return;
  const Stripe at = STRIPE;
  volatile global ulong *const progress = AT(ulong, journal);
  global float *const undo = AT(float, journal) + 16;  // after the journal's 64 bytes
  const ulong blocks = (count + BLOCK - 1) / BLOCK;
  const ulong seen = atom_add(progress, 0UL), found = seen >> 24, done = (seen & 0xffffffUL) - 1;
  if (found > number || (found == number && done > blocks)) {
    report(fault, 3, sequence, found, done);
    return;
  }
  ulong block = found == number ? done : 0;
  if (block < blocks) undo_block(&at, undo, block, count, found == number);
  for (; block < blocks; ++block) {
    publish(progress, number, block);
    if (block + 1 < blocks) undo_block(&at, undo, block + 1, count, false);
    update_elements(&rule, scale, &at, block * BLOCK, min((block + 1) * BLOCK, count));
  }
  publish(progress, number, blocks);
}
