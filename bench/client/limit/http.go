package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// An httpCaller sends each call as a POST with prepared headers and reads the
// response body.
type httpCaller struct {
	codec
	url    string
	header http.Header
	client *http.Client
	ids    atomic.Int64
}

func newHTTPCaller(t rig.Target, c codec) *httpCaller {
	p := &httpCaller{codec: c, url: t.URL, client: rig.HTTPClient(t.Width), header: http.Header{
		"Accept":               {"application/json, text/event-stream"},
		"Content-Type":         {"application/json"},
		"Mcp-Protocol-Version": {t.Era.Revision()},
	}}
	p.ids.Store(firstID)
	if t.Era == echo.Modern {
		p.header["Mcp-Method"] = []string{"tools/call"}
		p.header["Mcp-Name"] = []string{echo.Tool}
	} else {
		p.header["Mcp-Session-Id"] = []string{"limit"} // the server accepts any
	}
	return p
}

// responseSize is large enough for every response of the benchmark.
const responseSize = 4096

var buffers = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, responseSize)) }}

func (p *httpCaller) echo(ctx context.Context, message string) (string, error) {
	body, err := p.request(p.ids.Add(1), message)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header = p.header
	res, err := p.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return "", fmt.Errorf("HTTP %s", res.Status)
	}
	answer := buffers.Get().(*bytes.Buffer)
	defer buffers.Put(answer)
	answer.Reset()
	if _, err := answer.ReadFrom(io.LimitReader(res.Body, responseSize)); err != nil {
		return "", err
	}
	return p.text(firstMessage(answer.Bytes()))
}

// firstMessage returns the first message of an event stream. It returns any
// other body unchanged.
func firstMessage(body []byte) []byte {
	for line := range bytes.Lines(body) {
		if data, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			return bytes.TrimRight(data, "\n")
		}
	}
	return body
}
