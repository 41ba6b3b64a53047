package peer

import "context"

type arrivalKey struct{}

// An Arrival says how a message of the server arrived in a session.
type Arrival struct {
	// Of is the context of the request on whose stream the message arrived, nil for a stream of the
	// session.
	Of context.Context
	// Number increases with each request of the server.
	Number int64
}

// WithArrival returns ctx for serving a message that arrived in a session.
func WithArrival(ctx context.Context, a Arrival) context.Context {
	return context.WithValue(ctx, arrivalKey{}, a)
}

// ArrivalFrom returns the value of [WithArrival], zero without an arrival.
func ArrivalFrom(ctx context.Context) Arrival {
	a, _ := ctx.Value(arrivalKey{}).(Arrival)
	return a
}

// WithValuesOf returns ctx with the values of another context that it lacks itself.
func WithValuesOf(ctx, other context.Context) context.Context { return &valuesContext{ctx, other} }

type valuesContext struct {
	context.Context
	other context.Context
}

// Value returns the value of the context, or else of the other context.
func (c *valuesContext) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v
	}
	return c.other.Value(key)
}
