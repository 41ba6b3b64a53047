package mcp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A lineClient is the client's end of a stream of lines.
type lineClient struct {
	*testing.T
	conn   net.Conn
	lines  chan string
	served chan error
}

// serveLines serves h on a stream of lines. It must be called in a synctest bubble.
func serveLines(t *testing.T, h mcp.Handler) *lineClient {
	near, far := net.Pipe()
	c := &lineClient{T: t, conn: far, lines: make(chan string, 1000), served: make(chan error, 1)}
	go func() {
		c.served <- mcp.Serve(t.Context(), h, mcp.NewStreamConn(near, near, nil), &mcp.ServeOptions{Logger: discardLog})
	}()
	go func() {
		defer close(c.lines)
		for r := bufio.NewScanner(far); r.Scan(); {
			c.lines <- r.Text()
		}
	}()
	return c
}

// write sends lines in one write. The last line has no line end.
func (c *lineClient) write(lines ...string) {
	c.Helper()
	if _, err := io.WriteString(c.conn, strings.Join(lines, "\n")); err != nil {
		c.Fatal(err)
	}
}

// wantIDs waits until the server is idle and checks which requests it has answered.
func (c *lineClient) wantIDs(ids ...string) {
	c.Helper()
	synctest.Wait()
	got := map[string]bool{}
	for len(c.lines) > 0 {
		_, rest, _ := strings.Cut(<-c.lines, `"id":`)
		id, _, _ := strings.Cut(rest, ",")
		got[id] = true
	}
	if len(got) != len(ids) {
		c.Errorf("got responses to %v, want %v", got, ids)
	}
	for _, id := range ids {
		if !got[id] {
			c.Errorf("got no response to %s", id)
		}
	}
}

func (c *lineClient) end() {
	c.conn.Close()
	<-c.served
}

func TestResponsesDoNotWaitForRequestsThatArrivedTogether(t *testing.T) {
	list := func(id string) string { return modernLine(id, "tools/list", "") }
	block := func(id string) string { return modernLine(id, "tools/call", "") }
	for name, test := range map[string]struct {
		text     []string
		answered []string
	}{
		"alone":                       {[]string{list("1"), ""}, []string{"1"}},
		"together":                    {[]string{list("1"), list("2"), list("3"), ""}, []string{"1", "2", "3"}},
		"a request that blocks":       {[]string{list("1"), block("2"), ""}, []string{"1"}},
		"between requests that block": {[]string{block("1"), list("2"), block("3"), list("4"), block("5"), ""}, []string{"2", "4"}},
		"blank lines":                 {[]string{list("1"), "", " \t\r", "", ""}, []string{"1"}},
		"the beginning of a line":     {[]string{list("1"), `{"jsonrpc":`}, []string{"1"}},
		"a notification":              {[]string{list("1"), noteLine("x/y", `{}`), ""}, []string{"1"}},
		"a ping":                      {[]string{block("1"), plainLine("2", "ping", `{}`), list("3"), ""}, []string{"2", "3"}},
		"a cancellation": {
			[]string{list("1"), block("2"), noteLine("notifications/cancelled", `{"requestId":2}`), ""}, []string{"1"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := serveLines(t, methodTable{"tools/list": answerRevision, "tools/call": untilDone})
				c.write(test.text...)
				c.wantIDs(test.answered...)
				c.end()
			})
		})
	}
}

func TestBlockingHandlersDoNotDelayOtherRequests(t *testing.T) {
	const blocked = 100 // more than there are idle workers
	synctest.Test(t, func(t *testing.T) {
		c := serveLines(t, methodTable{"tools/list": answerRevision, "tools/call": untilDone})
		for range 3 {
			var calls, cancels []string
			for id := range blocked {
				calls = append(calls, modernLine(strconv.Itoa(id), "tools/call", ""))
				cancels = append(cancels, noteLine("notifications/cancelled", fmt.Sprintf(`{"requestId":%d}`, id)))
			}
			c.write(append(calls, modernLine(`"a"`, "tools/list", ""), "")...)
			c.wantIDs(`"a"`)
			c.write(append(cancels, modernLine(`"b"`, "tools/list", ""), "")...)
			c.wantIDs(`"b"`)
		}
		c.end()
	})
}

// Requirement: STDIO-02
func TestRawResultsAreWrittenOnOneLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := strings.Repeat("\n", 20_000)
		c := serveLines(t, methodTable{"tools/call": func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult("{\r\n\"resultType\":\"complete\",\n\"a\":\n\"\\n\"}"), nil
		}, "tools/list": func(context.Context, *mcp.Request) (mcp.Result, error) {
			return mcp.RawResult(`{"resultType":"complete","b":` + long + `1}`), nil
		}})
		c.write(modernLine(`1`, "tools/call", ""), modernLine(`2`, "tools/list", ""), modernLine(`3`, "tools/call", ""), "")
		want := []string{ // in any order
			resultLine(`1`, `{  "resultType":"complete", "a": "\n"}`),
			resultLine(`2`, `{"resultType":"complete","b":`+strings.Repeat(" ", len(long))+`1}`),
			resultLine(`3`, `{  "resultType":"complete", "a": "\n"}`),
		}
		got := []string{<-c.lines, <-c.lines, <-c.lines}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("got %.100q, want %.100q", got, want)
		}
		c.end()
	})
}
