package peer

import "context"

type arrivalKey struct{}

// An Arrival says how a message of the server has arrived in a session.
type Arrival struct {
	// Of is the context of the request on whose stream the message arrived, nil for a stream of the
	// session.
	Of context.Context
	// Number increases with each request of the server.
	Number int64
}

// WithArrival returns ctx for serving a message that has arrived in a session.
func WithArrival(ctx context.Context, a Arrival) context.Context {
	return context.WithValue(ctx, arrivalKey{}, a)
}

// ArrivalFrom returns the value of [WithArrival], zero if there is none.
func ArrivalFrom(ctx context.Context) Arrival {
	a, _ := ctx.Value(arrivalKey{}).(Arrival)
	return a
}
