package gateway

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// AdminClient returns a client of [Gateway.Admin] within this process, without a socket, such as
// for a web console. The host of its URLs must be localhost, as in
// http://localhost/admin/v1/servers. The records of requests that may change something name p as
// their caller; nil is the local user. The client may do everything: the program decides what p may
// do. The client is safe for concurrent use.
func (g *Gateway) AdminClient(p *mcp.Principal) *http.Client {
	_ = g.Admin()
	return &http.Client{Transport: &adminTransport{g.admin.Load(), p}}
}

// An adminTransport serves requests of a principal with the admin API.
type adminTransport struct {
	admin     *admin
	principal *mcp.Principal
}

// adminCallerKey is the key of the caller in the context of a request of [Gateway.AdminClient].
type adminCallerKey struct{}

// inProcess is the local address of requests within the process, whose network checkAdmin accepts.
var inProcess = &net.UnixAddr{Net: "unix"}

// RoundTrip serves a request. Closing the body of the response ends the request.
func (t *adminTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(context.WithValue(r.Context(), http.LocalAddrContextKey, inProcess))
	if t.principal != nil {
		ctx = context.WithValue(ctx, adminCallerKey{}, &policy.Caller{Principal: t.principal})
	}
	req := r.Clone(ctx)
	req.Host, req.RequestURI = cmp.Or(r.Host, r.URL.Host), r.URL.RequestURI()
	req.Body = cmp.Or(r.Body, io.ReadCloser(http.NoBody))
	body, pipe := io.Pipe()
	w := &adminResponse{PipeWriter: pipe, header: http.Header{}, began: make(chan struct{})}
	go func() { // ends with the handler, whose context ends with the body of the response
		defer cancel()
		defer context.AfterFunc(ctx, func() { pipe.CloseWithError(context.Cause(ctx)) })()
		defer func() { _ = req.Body.Close() }() // the request was served
		t.serve(w, req)
	}()
	select {
	case <-w.began:
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	return &http.Response{Status: strconv.Itoa(w.status) + " " + http.StatusText(w.status), StatusCode: w.status,
		Header: w.sent, ContentLength: -1, Body: &adminBody{body, cancel}, Request: r}, nil
}

// serve serves a request, and ends its response. A panic that nothing else recovers would end the
// process, because no server of package net/http runs the handler.
func (t *adminTransport) serve(w *adminResponse, r *http.Request) {
	defer func() {
		if v := recover(); v != nil {
			p := t.admin.panicked(r, v)
			if w.status != 0 { // it has begun
				_ = w.CloseWithError(p) // never fails
				return
			}
			t.admin.fail(w, p)
			_ = w.Close() // never fails
		}
	}()
	t.admin.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	_ = w.Close() // never fails
}

// An adminResponse writes a response to a pipe.
type adminResponse struct {
	*io.PipeWriter
	header, sent http.Header
	status       int
	once         sync.Once
	began        chan struct{} // closed when status and sent are set
}

// Header returns the headers, which WriteHeader copies.
func (w *adminResponse) Header() http.Header { return w.header }

// WriteHeader begins the response, unless it has begun.
func (w *adminResponse) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.began)
	})
}

// Write waits until the client has read b. It fails after the client has closed the body.
func (w *adminResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.PipeWriter.Write(b)
}

// Flush does nothing: Write does not buffer.
func (w *adminResponse) Flush() { w.WriteHeader(http.StatusOK) }

// An adminBody is a body whose Close ends the request.
type adminBody struct {
	*io.PipeReader
	cancel context.CancelFunc
}

// Close ends the request.
func (b *adminBody) Close() error {
	b.cancel()
	return b.PipeReader.Close()
}
