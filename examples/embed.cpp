// From C++: trains a small GPT-2 on the bytes of a file, and shows which letters it came to see
// alike.
//
//   embed FILE [STEPS]
#include <cmath>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "sluice/session.h"

namespace
{

constexpr int width = 32, bytes = 257;

void check(sl_status status)
{
    if (status != SL_OK)
        throw std::runtime_error(sl_status_message());
}

struct Close {
    void operator()(sl_options *options) const
    {
        sl_options_close(options);
    }
    void operator()(sl_session *session) const
    {
        sl_session_close(session);
    }
};

std::unique_ptr<sl_session, Close> open(const std::string &file, const std::string &steps)
{
    const char *const settings[] = {
        "data",        file.c_str(), "steps", steps.c_str(), "layers", "1",     "width",
        "32",          "heads",      "2",     "context",     "32",     "vocab", "257",
        "micro-batch", "8",          "lr",    "1e-2",        "policy", "host",  nullptr};
    sl_options *options = nullptr;
    sl_session *session = nullptr;
    check(sl_options_open(&options));
    const std::unique_ptr<sl_options, Close> owned(options);
    check(sl_options_set_all(options, settings));
    check(sl_session_open(options, &session));
    return std::unique_ptr<sl_session, Close>(session);
}

// The cosine of the vectors of two bytes.
float compare(const std::vector<float> &table, int a, int b)
{
    float product = 0, left = 0, right = 0;
    for (int i = 0; i < width; i++) {
        const float x = table[a * width + i], y = table[b * width + i];
        product += x * y;
        left += x * x;
        right += y * y;
    }
    return product / std::sqrt(left * right);
}

} // namespace

int main(int argc, char **argv)
try {
    const std::string steps = argc > 2 ? argv[2] : "100";
    const auto session = open(argc > 1 ? argv[1] : "", steps);
    sl_step_result step = {};
    step.size = sizeof step;
    while (sl_session_step_count(session.get()) < std::stoull(steps))
        check(sl_session_step(session.get(), &step));
    std::vector<float> table(bytes * width);
    check(sl_session_read(session.get(), "wte.weight", SL_STATE_PARAMETER, table.data(),
                          table.size()));
    std::printf("loss %.4f; e is like a: %.2f, like z: %.2f\n", step.loss, compare(table, 'e', 'a'),
                compare(table, 'e', 'z'));
} catch (const std::exception &error) {
    std::fprintf(stderr, "embed: %s\n", error.what());
    return 1;
}
