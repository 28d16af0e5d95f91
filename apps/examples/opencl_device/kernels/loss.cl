// Softmax and cross entropy: each row separately, then the sums over rows in their order.

typedef struct {
  double loss;
  uint counts;
  uint correct;
} RowLoss;

// Also the gradient to the logits [rows, classes], if requested. A row with a negative label does not count. Eight rows per
// item.
TASK loss_rows(FAULT, PLACE(found), PLACE(logits), PLACE(labels), PLACE(gradient), uint rows, uint classes,
               uint with_gradient, ulong sequence) {
  RETURN_IF_ENDED;
  const uint begin = get_global_id(0) * 8, end = min(begin + 8, rows);
  for (uint row = begin; row < end; ++row) {
    const int label = AT(int, labels)[row];
    global const float *z = AT(float, logits) + (ulong)row * classes;
    global float *out = AT(float, gradient) + (ulong)row * classes;
    RowLoss result = {0, 0, 0};
    if (label >= (int)classes) {
      report(fault, 2, sequence, row, (ulong)label);
      return;
    }
    if (label < 0) {
      for (uint k = 0; with_gradient && k < classes; ++k) out[k] = 0;
      AT(RowLoss, found)[row] = result;
      continue;
    }
    uint best = 0;
    for (uint k = 1; k < classes; ++k) best = z[k] > z[best] ? k : best;
    const float largest = z[best];
    float sum = 0;
    for (uint k = 0; k < classes; ++k) sum += exp(z[k] - largest);
    result.loss = log((double)sum) + ((double)largest - (double)z[label]);
    result.counts = 1;
    result.correct = best == (uint)label;
    AT(RowLoss, found)[row] = result;
    for (uint k = 0; with_gradient && k < classes; ++k)
      out[k] = exp(z[k] - largest) / sum - (k == (uint)label ? 1.0f : 0.0f);
  }
}

// Writes loss, correct and samples, or adds to them.
TASK loss_sums(FAULT, PLACE(sums), PLACE(found), uint rows, uint add) {
  RETURN_IF_ENDED;
  double loss = 0;
  ulong correct = 0, samples = 0;
  for (uint row = 0; row < rows; ++row) {
    loss += AT(RowLoss, found)[row].loss;
    correct += AT(RowLoss, found)[row].correct;
    samples += AT(RowLoss, found)[row].counts;
  }
  global StepSums *to = AT(StepSums, sums);
  to->loss = loss + (add ? to->loss : 0.0);
  to->correct = correct + (add ? to->correct : 0UL);
  to->samples = samples + (add ? to->samples : 0UL);
}
