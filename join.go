package redlock

import "context"

// Join returns a context that ends when the guard does or when ctx does, whichever is first; context.Cause says which. It
// carries ctx's values and deadline and the guard's fencing token, and its Err looks at the clock, as that of
// [Guard.Context]. It is for work that is called with a context of its own, a request's, while the lock is held for longer.
//
// Neither the end of ctx nor cancel gives the lock back. cancel ends the context, and is to be called when the work is
// done: until then the guard keeps the context in memory.
func (g *Guard) Join(ctx context.Context) (joined context.Context, cancel context.CancelFunc) {
	c := &joinedContext{guard: g, parent: ctx}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	stop := context.AfterFunc(g.Context(), func() { c.cancel(context.Cause(g.Context())) })
	return c, func() {
		stop()
		c.cancel(nil)
	}
}

// joinedContext embeds one of WithCancelCause for the reasons that guardContext has.
type joinedContext struct {
	context.Context
	guard  *Guard
	parent context.Context
	cancel context.CancelCauseFunc
}

// Err looks at the clock, and at the parent's Err, which may look at another.
func (c *joinedContext) Err() error {
	if c.guard.Context().Err() != nil {
		c.cancel(context.Cause(c.guard.Context()))
	} else if c.parent.Err() != nil {
		c.cancel(context.Cause(c.parent))
	}
	return c.Context.Err()
}

func (c *joinedContext) Value(key any) any {
	if key == (guardKey{}) {
		return c.guard
	}
	return c.Context.Value(key)
}
