// Words of Python lists -> numbers. What `word_table.py` does step by step in Python and NumPy is
// one loop here: with a fast GPU this is what embedding takes.
//
// A GPU reads millions of words a second, and a lookup is little more than the wait for the memory
// of the word. So the words of the next list are prefetched while those of this one are looked up.

#include <Python.h>

#include <algorithm>
#include <cstdint>

#ifdef Py_GIL_DISABLED
#error "lists may change while they are read here"
#endif

namespace {

PyObject** items(PyObject* list) { return reinterpret_cast<PyListObject*>(list)->ob_item; }

// Prefetches what a lookup reads first of a string: its type and its hash.
void prefetch(const PyObject* object) {
  __builtin_prefetch(object);
  __builtin_prefetch(reinterpret_cast<const char*>(object) + sizeof(PyObject));
}

// Prefetches the words of the next list. List objects are far apart, too, and so are their items:
// each has to be there when the prefetch of the next reads it, hence 6, 3 and 1 lists ahead.
void prefetch_lists(PyObject* lists, Py_ssize_t now) {
  const Py_ssize_t count = PyList_GET_SIZE(lists);
  const auto is_list = [&](Py_ssize_t k) { return k < count && PyList_CheckExact(items(lists)[k]); };
  if (now + 6 < count) prefetch(items(lists)[now + 6]);
  if (is_list(now + 3)) __builtin_prefetch(items(items(lists)[now + 3]));
  if (!is_list(now + 1)) return;
  PyObject* const next = items(lists)[now + 1];
  std::for_each_n(items(next), PyList_GET_SIZE(next), prefetch);
}

constexpr int64_t FAILED = -1, UNUSUAL = -2;  // instead of a number of words

}  // namespace

extern "C" {

// Looks up every word of lists of words, in their order. A word that is not in the dictionary is
// added with the next number.
//
// Returns how many words were added; UNUSUAL if there is anything but strings in lists, or if they
// are not exactly `capacity` words; FAILED with Python's error set.
int64_t elmo_find_words(PyObject* lists, PyObject* numbers, int64_t next, int64_t* found,
                        int64_t capacity) {
  if (!PyList_CheckExact(lists) || !PyDict_Check(numbers)) return UNUSUAL;
  const int64_t* const end = found + capacity;
  const int64_t first = next;
  for (Py_ssize_t number = 0; number < PyList_GET_SIZE(lists); ++number) {
    PyObject* const words = items(lists)[number];
    if (!PyList_CheckExact(words)) return UNUSUAL;
    prefetch_lists(lists, number);
    const Py_ssize_t count = PyList_GET_SIZE(words);
    if (count > end - found) return UNUSUAL;
    for (Py_ssize_t place = 0; place < count; ++place) {
      // Comparing plain strings runs no code of others, so that no list can change meanwhile.
      PyObject* const word = items(words)[place];
      if (!PyUnicode_CheckExact(word)) return UNUSUAL;
      PyObject* known = PyDict_GetItemWithError(numbers, word);
      if (!known) {
        if (PyErr_Occurred()) return FAILED;
        known = PyLong_FromLongLong(next++);
        if (!known || PyDict_SetItem(numbers, word, known)) {
          Py_XDECREF(known);
          return FAILED;
        }
        Py_DECREF(known);  // the dictionary has it
      }
      *found++ = PyLong_AsLongLong(known);
    }
  }
  return found == end ? next - first : UNUSUAL;
}

// Renumbers the numbers in runs of an array, without gaps, in their order.
//
// `marks` has an element for each number from 0 to `limit - 1`; `distinct` and `places` can hold
// all numbers of the runs. Returns how many distinct ones there are; UNUSUAL if a number or a run
// is out of bounds.
int64_t elmo_renumber(const int64_t* numbers, const int64_t* starts, const int64_t* sizes,
                      int64_t count, int64_t runs, int64_t limit, int32_t* marks,
                      int64_t* distinct, int64_t* places) {
  // Three passes, no sorting: mark what occurs, number the marks, look the numbers up.
  std::fill_n(marks, limit, -1);
  for (int64_t run = 0; run < runs; ++run) {
    if (starts[run] < 0 || sizes[run] < 0 || starts[run] > count - sizes[run]) return UNUSUAL;
    for (int64_t k = starts[run]; k < starts[run] + sizes[run]; ++k) {
      if (uint64_t(numbers[k]) >= uint64_t(limit)) return UNUSUAL;
      marks[numbers[k]] = 0;
    }
  }
  int32_t found = 0;
  for (int64_t number = 0; number < limit; ++number)
    if (marks[number] == 0) {
      distinct[found] = number;
      marks[number] = found++;
    }
  for (int64_t run = 0; run < runs; ++run)
    places = std::transform(numbers + starts[run], numbers + starts[run] + sizes[run], places,
                            [&](int64_t number) { return int64_t(marks[number]); });
  return found;
}

}  // extern "C"
