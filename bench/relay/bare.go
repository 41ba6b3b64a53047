package main

import (
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
)

// idleConns is more than the number of connections of any workload.
const idleConns = 256

func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConns: idleConns, MaxIdleConnsPerHost: idleConns, DisableCompression: true}
}

// A bareRelay sends the body of each request to the server, and the response
// back, and reads neither. No relay on net/http can be cheaper.
type bareRelay struct {
	url       string
	transport *http.Transport
}

func newBareRelay(url string) *bareRelay { return &bareRelay{url, newTransport()} }

// requestHeaders are the headers of a request that MCP servers need.
var requestHeaders = []string{"Content-Type", "Accept", "Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name",
	"Mcp-Session-Id"}

func (b *bareRelay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, err := http.NewRequestWithContext(r.Context(), r.Method, b.url, r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.ContentLength = r.ContentLength
	for _, name := range requestHeaders {
		if value, ok := r.Header[name]; ok {
			out.Header[name] = value
		}
	}
	resp, err := b.transport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	header := w.Header()
	for _, name := range []string{"Content-Type", "Content-Length", "Mcp-Session-Id"} {
		if value, ok := resp.Header[name]; ok {
			header[name] = value
		}
	}
	w.WriteHeader(resp.StatusCode)
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		copyEvents(w, resp.Body)
		return
	}
	buffer := copyBuffers.Get()
	defer copyBuffers.Put(buffer)
	io.CopyBuffer(struct{ io.Writer }{w}, resp.Body, buffer)
}

var copyBuffers bufferPool

var eventBuffers = sync.Pool{New: func() any { return new([8 << 10]byte) }}

// copyEvents flushes what each read returns.
func copyEvents(w http.ResponseWriter, body io.Reader) {
	b := eventBuffers.Get().(*[8 << 10]byte)
	defer eventBuffers.Put(b)
	for {
		n, err := body.Read(b[:])
		if n > 0 {
			w.Write(b[:n])
			w.(http.Flusher).Flush()
		}
		if err != nil {
			return
		}
	}
}

// A bufferPool keeps the buffers with which a ReverseProxy copies bodies.
type bufferPool struct{ sync.Pool }

// bufferSize is the size of the buffers of a ReverseProxy without a pool.
const bufferSize = 32 << 10

func (p *bufferPool) Get() []byte {
	if b, ok := p.Pool.Get().(*[bufferSize]byte); ok {
		return b[:]
	}
	return make([]byte, bufferSize)
}

func (p *bufferPool) Put(b []byte) { p.Pool.Put((*[bufferSize]byte)(b)) }

// newReverseProxy returns a ReverseProxy that allocates a buffer for each body, unless pool has some.
func newReverseProxy(endpoint string, pool httputil.BufferPool) (http.Handler, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = u.Scheme, u.Host
		},
		Transport:  newTransport(),
		BufferPool: pool,
	}, nil
}
