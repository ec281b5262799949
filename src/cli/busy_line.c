/* All long work gives signs of life (base/heartbeat.h). Each of them may draw the line anew, so the
 * line needs no thread. */
#include "busy_line.h"

#include <string.h>

#include "base/clock.h"
#include "checkpoint/checkpoint.h"
#include "files/files.h"
#include "terminal.h"

static const double silent_seconds = 1, pause_seconds = 0.5, plain_pause_seconds = 10;

static double read_seconds(void)
{
    return 1e-9 * (double)sl_clock_now_ns();
}

/* The directory that the run begins from; NULL: none. */
static const char *find_source(const sl_config *config)
{
    uint64_t step;
    bool is_used = false;
    if (config->resume && config->save &&
        sl_checkpoint_newest_step(config->save, &is_used, &step) == SL_OK && is_used)
        return config->save;
    return config->init && strcmp(config->init, "scratch") != 0 ? config->init : NULL;
}

static void tell(sl_busy_line *self)
{
    self->is_told = true; /* looking for a checkpoint gives signs of life too */
    const char *source = find_source(self->config);
    if (source)
        sl_terminal_print(self->plain, 2, "loading %s ...", sl_files_show(source).text);
    else
        sl_terminal_print(self->plain, 2, "opening (plan, memory, first values) ...");
    fflush(self->plain);
}

static void draw(sl_busy_line *self, double now)
{
    char text[SL_BUSY_LINE_BYTES];
    snprintf(text, sizeof text, "%s  %.0f s", self->what, now - self->started);
    if (self->plain)
        sl_terminal_print(self->plain, 2, "%s", text);
    else
        sl_terminal_draw(stderr, text);
    self->shown = now;
    self->is_shown = !self->plain;
}

static sl_status show(void *user)
{
    sl_busy_line *self = user;
    const double now = read_seconds();
    const double pause = self->plain ? plain_pause_seconds : pause_seconds;
    const bool is_long = now - self->started >= silent_seconds;
    if (is_long && self->is_opening && self->plain && !self->is_told)
        tell(self);
    else if (is_long && !self->is_told && now - self->shown >= pause)
        draw(self, now);
    return self->before.listener ? self->before.listener(self->before.user) : SL_OK;
}

void sl_busy_line_begin(sl_busy_line *self, const sl_config *config, const char *what, FILE *plain)
{
    const bool is_live = sl_terminal_is_live(stderr);
    const double now = read_seconds();
    *self = (sl_busy_line){.what = what,
                           .config = config,
                           .plain = is_live ? NULL : plain,
                           .started = now,
                           .shown = is_live ? 0 : now};
    if (config->quiet || (!is_live && !plain))
        return;
    self->before = sl_heartbeat_listen((sl_heartbeat){show, self});
    self->listens = true;
}

void sl_busy_line_begin_opening(sl_busy_line *self, const sl_config *config, FILE *plain)
{
    sl_busy_line_begin(self, config, "opening (plan, memory, first values)", plain);
    self->is_opening = true;
}

void sl_busy_line_end(sl_busy_line *self)
{
    if (self->listens)
        (void)sl_heartbeat_listen(self->before);
    if (self->is_shown) {
        sl_terminal_draw(stderr, "");
        sl_terminal_forget_line();
    }
    self->listens = self->is_shown = false;
}
