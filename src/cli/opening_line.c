/* All long work of the opening gives signs of life (base/heartbeat.h). Each of them may draw the
 * line anew, so the line needs no thread. */
#include "opening_line.h"

#include "base/clock.h"
#include "terminal.h"

static const double silent_seconds = 1, pause_seconds = 0.5;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

static sl_status show(void *user)
{
    sl_opening_line *self = user;
    const double now = read_seconds();
    if (now - self->started >= silent_seconds && now - self->shown >= pause_seconds) {
        char text[96];
        snprintf(text, sizeof text, "%s  %.0f s", self->what, now - self->started);
        sl_terminal_draw(stderr, text);
        self->shown = now;
        self->is_shown = true;
    }
    return self->before.listener ? self->before.listener(self->before.user) : SL_OK;
}

static void begin(sl_opening_line *self, const sl_config *config, const char *what)
{
    *self = (sl_opening_line){.what = what, .started = read_seconds()};
    if (config->quiet || !sl_terminal_is_live(stderr))
        return;
    self->before = sl_heartbeat_listen((sl_heartbeat){show, self});
    self->listens = true;
}

void sl_opening_line_begin(sl_opening_line *self, const sl_config *config)
{
    begin(self, config, "opening (plan, memory, first values)");
}

void sl_opening_line_begin_planning(sl_opening_line *self, const sl_config *config)
{
    begin(self, config, "planning");
}

void sl_opening_line_end(sl_opening_line *self)
{
    if (self->listens)
        (void)sl_heartbeat_listen(self->before);
    if (self->is_shown) {
        sl_terminal_draw(stderr, "");
        sl_terminal_forget_line();
    }
    self->listens = self->is_shown = false;
}
