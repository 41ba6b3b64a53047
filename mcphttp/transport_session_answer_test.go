package mcphttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// An answer whose connection breaks is sent again, whether or not the server has read it. Otherwise
// the server would wait ten minutes for it.
func TestSessionClient_LostAnswerIsSentAgain(t *testing.T) {
	for _, version := range sessionRevisions {
		for _, reaches := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reaches the server %v", version, reaches), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testLostAnswer(t, version, reaches) })
			})
		}
	}
}

func testLostAnswer(t *testing.T, version string, reaches bool) {
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(server, &mcp.Tool{Name: "ask"}, func(ctx context.Context, _ struct{}) (string, error) {
		res, err := mcp.Sample(ctx, "k", &mcp.CreateMessageParams{
			MaxTokens: 1, Messages: []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("?")}}},
		})
		if err != nil {
			return "", err
		}
		return res.Text(), nil
	})
	f := start(t, server, nil)
	var lost, asked atomic.Int32
	network := roundTripper(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodPost && r.URL.RawQuery == "" && version == november2024 {
			return methodRefuser{nil, http.MethodPost, 405}.RoundTrip(r)
		}
		if r.Method != http.MethodPost {
			return f.client.Transport.RoundTrip(r)
		}
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		if !bytes.Contains(body, []byte(`"result"`)) || lost.Load() == 2 {
			return f.client.Transport.RoundTrip(r)
		}
		lost.Add(1)
		if reaches {
			if resp, err := f.client.Transport.RoundTrip(r); err == nil {
				resp.Body.Close()
			}
		}
		return nil, io.ErrUnexpectedEOF
	})
	c, err := mcp.Connect(t.Context(), f.transport(&mcphttp.TransportOptions{Client: &http.Client{Transport: network}}),
		&mcp.ClientOptions{Revision: version, Logger: discardLogger,
			Sample: func(context.Context, *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
				asked.Add(1)
				return &mcp.CreateMessageResult{Role: mcp.RoleAssistant, Model: "m",
					Content: []mcp.ContentBlock{mcp.Text("answer")}}, nil
			}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	began := time.Now()
	res, err := c.CallTool(t.Context(), "ask", nil)
	if err != nil || res.Text() != "answer" || asked.Load() != 1 {
		t.Errorf("got %v, %v, asked %d times", res, err, asked.Load())
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the call took %v", took)
	}
	time.Sleep(30 * time.Second) // until no answer is being sent
	if lost.Load() != 2 {
		t.Errorf("%d answers were lost, want 2", lost.Load())
	}
}
