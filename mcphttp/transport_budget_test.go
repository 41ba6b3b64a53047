//go:build !race

package mcphttp_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A cannedTripper answers what is posted without a network.
type cannedTripper struct{ body, answer []byte }

func (c *cannedTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPost {
		return &http.Response{StatusCode: http.StatusMethodNotAllowed, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	}
	n, err := io.ReadFull(r.Body, c.body[:r.ContentLength])
	r.Body.Close()
	if err != nil {
		return nil, err
	}
	body := c.body[:n]
	result := `{"resultType":"complete","content":[{"type":"text","text":"hello world"}]}`
	header := http.Header{"Content-Type": {"application/json"}}
	switch {
	case bytes.Contains(body, []byte(`"server/discover"`)):
		result = `{"resultType":"complete","supportedVersions":["` + modern + `"],"capabilities":{"tools":{}}}`
	case bytes.Contains(body, []byte(`"initialize"`)):
		header.Set("Mcp-Session-Id", "canned")
		result = `{"protocolVersion":"` + november2025 + `","capabilities":{"tools":{}},"serverInfo":{"name":"canned","version":"1"}}`
	case bytes.Contains(body, []byte(`"notifications/`)):
		return &http.Response{StatusCode: http.StatusAccepted, Header: header, Body: http.NoBody, Request: r}, nil
	}
	_, rest, _ := bytes.Cut(body, []byte(`"id":`))
	id, _, _ := bytes.Cut(rest, []byte(`,`))
	c.answer = append(append(c.answer[:0], `{"jsonrpc":"2.0","id":`...), id...)
	c.answer = append(append(append(c.answer, `,"result":`...), result...), '}')
	return &http.Response{
		StatusCode: http.StatusOK, Header: header, Request: r,
		ContentLength: int64(len(c.answer)), Body: io.NopCloser(bytes.NewReader(c.answer)),
	}, nil
}

// What a call costs a client over HTTP, without a connection. Of the allocations 9 are the test's, its arguments and the
// answer; 7 http.Client makes and 11 are the copy of the header and the context that a RoundTripper gets which is not
// net/http's; the other 12 are the request, its body, the answer and the result. A session translates both params and
// result, which are copied once more.
func TestAllocationsOfACallOverHTTP(t *testing.T) {
	for revision, most := range map[string]float64{modern: 40, november2025: 43} {
		client := &http.Client{Transport: &cannedTripper{body: make([]byte, 4<<10)}}
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport("http://localhost/mcp", &mcphttp.TransportOptions{Client: client}), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		got := testing.AllocsPerRun(500, func() {
			if got, err := mcp.Call[string](t.Context(), c, "echo", map[string]any{"message": "hello world"}); err != nil || got != "hello world" {
				t.Errorf("echo gave %q, %v", got, err)
			}
		})
		if got > most {
			t.Errorf("a call in %s costs %v allocations, want at most %v", revision, got, most)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
}
