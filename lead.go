package redlock

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Lead campaigns for the lock for ever: it waits for it, runs fn while it holds it, gives it back when fn has returned, and
// campaigns again. Of all programs that call it one leads, and fn runs in one of them at a time.
//
// fn's context carries ctx's values and deadline. It ends at once when ctx ends and when the lead is lost; context.Cause
// says which. As with Do the end of ctx does not give the lock away: fn has as long as it takes to wind down, and the
// others get the lock at once after that. An fn that panics gives the lock back, and the panic goes on.
//
// Whatever fn returns, nil too, Lead campaigns again after a pause in which others can have the lead. So it does after a
// loss, and after a campaign that failed because no quorum could be reached. The pause is about a hundredth of KeyValidity
// at first, and doubles each time up to KeyValidity, half of it at random, until fn has led for as long as KeyValidity. The
// Logger is told when a lead begins, when and why it ends, and that a campaign fails. Who has done all there is to do ends ctx.
//
// Lead returns, and never nil, when
//   - ctx has ended, and fn has returned if it ran: the error matches ctx.Err() and context.Cause(ctx). It is joined with
//     what the last lead came to, unless that was nil or ctx's end itself: fn's error, ErrLost if the lead was lost before
//     fn had returned, ErrNotReleased if no quorum has confirmed that the lock is free. Without one of the last two the
//     lock was handed over;
//   - the Locker is closed: ErrLockerClosed, joined with the same;
//   - the name or an option breaks a rule: ErrInvalidOption, and fn never ran.
//
// An error of fn's that matches ErrLockerClosed or ErrInvalidOption is one like any other.
func (l *Locker) Lead(ctx context.Context, name string, fn func(context.Context) error, opts ...HoldOption) error {
	h := holdOf(hold{parented: true, outlives: true}, opts)
	var pause time.Duration
	var last error // what the last lead came to
	for failing := false; ; {
		g, err := l.acquire(ctx, name, h)
		switch {
		case err == nil:
			failing = false
			began := l.clock.Now()
			if last = g.lead(ctx, fn); l.clock.Now()-began >= l.option.KeyValidity {
				pause = 0
			}
		case errors.Is(err, ErrLockerClosed), errors.Is(err, ErrInvalidOption):
			return err
		case ctx.Err() != nil:
			return waitEnded(ctx, name, err)
		case !failing:
			failing, last = true, nil
			l.log.Warn("redlock: cannot campaign, goes on trying", "lock", name, "error", err.Error())
		}
		pause = min(max(2*pause, l.option.KeyValidity/100), l.option.KeyValidity)
		if ended := l.rest(ctx, name, pause/2+l.jitter(pause/2), nil); ended != nil {
			if last == nil || errors.Is(ended, last) {
				return ended
			}
			return errors.Join(ended, last)
		}
	}
}

// lead runs fn while the guard is held, and releases.
func (g *Guard) lead(ctx context.Context, fn func(context.Context) error) (err error) {
	attrs := []slog.Attr{slog.String("lock", g.life.name), slog.Uint64("token", g.life.token)}
	g.l.log.LogAttrs(ctx, slog.LevelInfo, "redlock: begins to lead", attrs...)
	defer func() {
		released := g.releaseAfter(ctx)
		if released != nil {
			err = errors.Join(err, released)
		}
		level := slog.LevelInfo
		if err != nil {
			attrs = append(attrs, slog.String("error", err.Error()))
			if released != nil || ctx.Err() == nil { // else it was told to end
				level = slog.LevelWarn
			}
		}
		g.l.log.LogAttrs(ctx, level, "redlock: leads no longer", attrs...)
	}()
	return fn(g.Context())
}

// Leader asks every node who leads under name: whoever holds the lock. Holder is empty while nobody does, between two
// leads. It changes nothing, and like all of a [Line] it may be out of date when it is returned. Errors are those of
// Inspect.
func (l *Locker) Leader(ctx context.Context, name string) (Line, error) { return l.Inspect(ctx, name) }
