#include "runtime/base/mpsc_stack.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <thread>
#include <vector>

namespace troupe {
namespace {

struct Element {
  std::size_t thread = 0;
  std::size_t number = 0;
  Element* next = nullptr;
};
using List = MpscStack<Element, &Element::next>;

std::vector<std::size_t> numbers(const Element* taken) {
  std::vector<std::size_t> all;
  for (; taken != nullptr; taken = List::next_of(*taken)) all.push_back(taken->number);
  return all;
}

TEST(MpscStack, GivesWhatCameInTheOrderInWhichItCame) {
  List list;
  std::array<Element, 3> elements{{{0, 1}, {0, 2}, {0, 3}}};
  EXPECT_TRUE(list.empty());
  for (Element& element : elements) EXPECT_TRUE(list.push(element));
  EXPECT_FALSE(list.empty());
  EXPECT_EQ(numbers(list.take_all()), (std::vector<std::size_t>{1, 2, 3}));
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.take_all(), nullptr);
}

TEST(MpscStack, TakesNothingOnceItIsClosed) {
  List list;
  Element before{0, 1}, after{0, 2};
  EXPECT_TRUE(list.push(before));
  EXPECT_EQ(numbers(list.close()), std::vector<std::size_t>{1});
  EXPECT_FALSE(list.push(after));
  EXPECT_TRUE(list.empty());
  EXPECT_EQ(list.take_all(), nullptr);
  EXPECT_EQ(list.close(), nullptr);
}

TEST(MpscStack, LosesAndDoublesNothingOfManyThreads) {
  constexpr std::size_t kThreads = 4, kEach = 20'000;
  List list;
  std::vector<std::vector<Element>> elements(kThreads, std::vector<Element>(kEach));
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t n = 0; n < kEach; ++n) {
        elements[t][n] = {t, n};
        list.push(elements[t][n]);
      }
    });
  }
  std::array<std::size_t, kThreads> next{};
  for (std::size_t taken = 0; taken < kThreads * kEach;) {
    const Element* element = list.take_all();
    if (element == nullptr) std::this_thread::yield();
    for (; element != nullptr; element = List::next_of(*element), ++taken) {
      ASSERT_EQ(element->number, next[element->thread]);
      ++next[element->thread];
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(list.empty());
}

}  // namespace
}  // namespace troupe
