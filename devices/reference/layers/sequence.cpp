#include <algorithm>
#include <cmath>

#include "devices/reference/layers/layers.hpp"
#include "runtime/base/error.hpp"

namespace troupe::reference {
namespace {

/// Calls `take(place, vector)` for each token that is not below 0: its index in the batch, its row of the table.
template <class Take>
void for_tokens(const Embedding& embedding, const LayerWork& work, Take&& take) {
  const std::vector<double>& tokens = work.inputs[0]->values;
  for (std::size_t place = 0; place < tokens.size(); ++place) {
    if (tokens[place] < 0) continue;
    TROUPE_CHECK(tokens[place] < embedding.vocabulary, Code::corrupt, "a batch has token ", tokens[place],
                 ", the model has a vocabulary of ", embedding.vocabulary, ": check the data set");
    take(place, static_cast<std::size_t>(tokens[place]));
  }
}

/// Of the `width` elements at `x`.
struct Moments {
  double mean = 0, inverse_deviation = 0;
};
Moments moments_of(const LayerNorm& norm, const double* x, std::size_t width) {
  Moments found;
  double variance = 0;
  for (std::size_t i = 0; i < width; ++i) found.mean += x[i] / static_cast<double>(width);
  for (std::size_t i = 0; i < width; ++i)
    variance += (x[i] - found.mean) * (x[i] - found.mean) / static_cast<double>(width);
  found.inverse_deviation = 1 / std::sqrt(variance + norm.epsilon);
  return found;
}

/// Where a head's queries, keys and values are in a row [length, 3 width], and its part of an output [length, width].
struct Head {
  std::size_t length, width, part;  // part: the head's elements of a position
  std::size_t query, output;        // keys are width elements after the queries, values twice width
  std::size_t step() const noexcept { return 3 * width; }
};
template <class Take>
void for_heads(const Attention& attention, const LayerWork& work, Take&& take) {
  const auto& extents = work.output->shape.extents;
  const std::size_t length = extents[0], width = extents[1], part = width / attention.heads;
  for (std::size_t row = 0; row < work.rows; ++row)
    for (std::size_t head = 0; head < attention.heads; ++head)
      take(Head{length, width, part, row * length * 3 * width + head * part, row * length * width + head * part});
}

/// softmax(q k / sqrt(part)) for position `at`, over the positions that it reads.
std::vector<double> weights_of(const Attention& attention, const Head& head, const double* x, std::size_t at) {
  std::vector<double> weights(attention.causal ? at + 1 : head.length);
  const double* const q = x + head.query + at * head.step();
  for (std::size_t other = 0; other < weights.size(); ++other) {
    const double* const k = x + head.query + head.width + other * head.step();
    for (std::size_t i = 0; i < head.part; ++i) weights[other] += q[i] * k[i];
    weights[other] /= std::sqrt(static_cast<double>(head.part));
  }
  const double largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

void forward(const Embedding& embedding, const LayerWork& work) {
  std::fill(work.output->values.begin(), work.output->values.end(), 0.0);
  for_tokens(embedding, work, [&](std::size_t place, std::size_t token) {
    std::copy_n(work.parameters[0].values + token * embedding.width, embedding.width,
                &work.output->values[place * embedding.width]);
  });
}

void backward(const Embedding& embedding, const LayerWork& work) {
  for_tokens(embedding, work, [&](std::size_t place, std::size_t token) {
    for (std::size_t i = 0; i < embedding.width; ++i)
      work.parameters[0].gradients[token * embedding.width + i] += work.output->gradients[place * embedding.width + i];
  });
}

void forward(const Position&, const LayerWork& work) {
  const std::size_t count = work.output->shape.count_elements();
  for (std::size_t i = 0; i < work.output->values.size(); ++i)
    work.output->values[i] = work.inputs[0]->values[i] + work.parameters[0].values[i % count];
}

void backward(const Position&, const LayerWork& work) {
  const std::size_t count = work.output->shape.count_elements();
  for (std::size_t i = 0; i < work.output->gradients.size(); ++i) {
    work.inputs[0]->gradients[i] += work.output->gradients[i];
    work.parameters[0].gradients[i % count] += work.output->gradients[i];
  }
}

void forward(const LayerNorm& norm, const LayerWork& work) {
  const std::size_t width = work.output->shape.extents.back();
  for (std::size_t first = 0; first < work.output->values.size(); first += width) {
    const double* const x = &work.inputs[0]->values[first];
    const Moments moments = moments_of(norm, x, width);
    for (std::size_t i = 0; i < width; ++i) {
      const double normal = (x[i] - moments.mean) * moments.inverse_deviation;
      work.output->values[first + i] = normal * work.parameters[0].values[i] + work.parameters[1].values[i];
    }
  }
}

void backward(const LayerNorm& norm, const LayerWork& work) {
  const std::size_t width = work.output->shape.extents.back();
  const auto share = 1 / static_cast<double>(width);
  for (std::size_t first = 0; first < work.output->values.size(); first += width) {
    const double *x = &work.inputs[0]->values[first], *dy = &work.output->gradients[first];
    const Moments moments = moments_of(norm, x, width);
    const auto normal = [&](std::size_t i) { return (x[i] - moments.mean) * moments.inverse_deviation; };
    const auto to_normal = [&](std::size_t i) { return dy[i] * work.parameters[0].values[i]; };
    double mean = 0, along = 0;  // of the gradient to the normalized values; of that gradient times these
    for (std::size_t i = 0; i < width; ++i) {
      work.parameters[0].gradients[i] += dy[i] * normal(i);
      work.parameters[1].gradients[i] += dy[i];
      mean += share * to_normal(i);
      along += share * to_normal(i) * normal(i);
    }
    for (std::size_t i = 0; i < width; ++i)
      work.inputs[0]->gradients[first + i] += moments.inverse_deviation * (to_normal(i) - mean - normal(i) * along);
  }
}

void forward(const Attention& attention, const LayerWork& work) {
  const double* const x = work.inputs[0]->values.data();
  std::fill(work.output->values.begin(), work.output->values.end(), 0.0);
  for_heads(attention, work, [&](const Head& head) {
    for (std::size_t at = 0; at < head.length; ++at) {
      const std::vector<double> weights = weights_of(attention, head, x, at);
      double* const y = &work.output->values[head.output + at * head.width];
      for (std::size_t other = 0; other < weights.size(); ++other) {
        const double* const v = x + head.query + 2 * head.width + other * head.step();
        for (std::size_t i = 0; i < head.part; ++i) y[i] += weights[other] * v[i];
      }
    }
  });
}

void backward(const Attention& attention, const LayerWork& work) {
  const double* const x = work.inputs[0]->values.data();
  double* const dx = work.inputs[0]->gradients.data();
  for_heads(attention, work, [&](const Head& head) {
    const double scale = 1 / std::sqrt(static_cast<double>(head.part));
    for (std::size_t at = 0; at < head.length; ++at) {
      const std::vector<double> weights = weights_of(attention, head, x, at);
      const double* const dy = &work.output->gradients[head.output + at * head.width];
      std::vector<double> to_weights(weights.size());
      double mean = 0;  // mean of the gradients to the weights, weighted by the weights
      for (std::size_t other = 0; other < weights.size(); ++other) {
        const std::size_t v = head.query + 2 * head.width + other * head.step();
        for (std::size_t i = 0; i < head.part; ++i) {
          to_weights[other] += dy[i] * x[v + i];
          dx[v + i] += weights[other] * dy[i];
        }
        mean += weights[other] * to_weights[other];
      }
      const std::size_t q = head.query + at * head.step();
      for (std::size_t other = 0; other < weights.size(); ++other) {
        const std::size_t k = head.query + head.width + other * head.step();
        const double to_product = scale * weights[other] * (to_weights[other] - mean);
        for (std::size_t i = 0; i < head.part; ++i) {
          dx[q + i] += to_product * x[k + i];
          dx[k + i] += to_product * x[q + i];
        }
      }
    }
  });
}

}  // namespace troupe::reference
