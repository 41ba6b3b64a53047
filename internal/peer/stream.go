package peer

import "context"

type streamKey struct{}

// WithStream returns ctx, for a message of the server, with the context of the request on whose
// stream the message arrived. It may be nil.
func WithStream(ctx, of context.Context) context.Context {
	if of == nil {
		return ctx
	}
	return context.WithValue(ctx, streamKey{}, of)
}

// Stream returns the context of the request on whose stream a message arrived, or nil.
func Stream(ctx context.Context) context.Context {
	of, _ := ctx.Value(streamKey{}).(context.Context)
	return of
}
