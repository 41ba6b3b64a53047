//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// replay uses the state of a question of a call as another principal, for whom it must be invalid, and
// then itself: twice at a time if the gateway has the call, which must accept it once. A server of
// 2026-07-28 decides itself about a state that comes twice.
func (w *gatewayWorker) replay(ctx context.Context, upstream string, in *upstreamArguments) {
	in.Count = 1
	asked, ok := w.callRaw(ctx, w.principal, upstream, in, "")
	if !ok || asked.ResultType != "input_required" {
		return
	}
	answers := map[string]any{}
	for key, question := range asked.InputRequests {
		nonce := lastWord(question.Params.Message) // over stdio it may be that of another call
		answers[key] = map[string]any{"action": "accept", "content": map[string]string{"value": wordFor(nonce)}}
	}
	text, _ := json.Marshal(map[string]any{"requestState": asked.RequestState, "inputResponses": answers})
	more := string(bytes.Trim(text, "{}")) + "," // the state is the last member
	others := slices.DeleteFunc(slices.Clone(principals[:gatewayPrincipals]), func(p string) bool { return p == w.principal })
	stranger := others[w.random.IntN(len(others))]
	if got, ok := w.callRaw(ctx, stranger, upstream, in, more); ok {
		w.history.note(note{Stream: in.Nonce, Kind: "state used by another principal", Owner: stranger, For: stranger})
		if got.ResultType != "" && !got.IsError {
			text := fmt.Sprintf("%s used that of %s: %+v", stranger, in.text(), got)
			w.history.violate("crossed: a state was accepted from another principal", text)
		}
	}
	uses := 1
	if isSession(upstream) {
		uses = 2
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var complete []rawToolResult
	for range uses {
		all.Go(func() {
			got, ok := w.callRaw(ctx, w.principal, upstream, in, more)
			mu.Lock()
			defer mu.Unlock()
			if ok && got.ResultType == "complete" && !got.IsError {
				complete = append(complete, got)
			}
		})
	}
	all.Wait()
	kind := fmt.Sprintf("state used %d times, accepted %d times", uses, len(complete))
	w.history.note(note{Stream: in.Nonce, Kind: kind, Owner: w.principal, For: w.principal})
	want := in.text() + " " + wordFor(in.Nonce)
	for _, got := range complete {
		if len(complete) > 1 || got.text() != want {
			text := fmt.Sprintf("%s: %+v, want %q once", in.text(), complete, want)
			w.history.violate("doubled or crossed: answers to a question", text)
			return
		}
	}
}

func lastWord(text string) string { return text[strings.LastIndexByte(text, ' ')+1:] }

// isSession reports whether an upstream has sessions: its calls that ask are in progress meanwhile.
func isSession(upstream string) bool { return upstream[1:] == "25" }

// A rawToolResult is the part of the result of a call that the checks need. It is zero for an error.
type rawToolResult struct {
	ResultType    string `json:"resultType"`
	RequestState  string `json:"requestState"`
	IsError       bool   `json:"isError"`
	InputRequests map[string]struct {
		Params struct {
			Message string `json:"message"`
		} `json:"params"`
	} `json:"inputRequests"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
}

func (r rawToolResult) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

// callRaw calls the tool that asks, as a client of 2026-07-28 without the SDK. more is further members
// of the params. It reports whether there was a response.
func (w *gatewayWorker) callRaw(
	ctx context.Context, principal, upstream string, in *upstreamArguments, more string,
) (res rawToolResult, ok bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clientTimeout)
	defer cancel()
	arguments, _ := json.Marshal(in) // never fails
	name := upstream + "__ask"
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,%s`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`, name, arguments, more, downstreams[0])
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.proxy.url()+"/mcp", bytes.NewReader([]byte(body)))
	if err != nil {
		panic(err) // the URL is valid
	}
	req.Header = http.Header{
		"Authorization": {"Bearer " + tokenOf(principal)}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {downstreams[0]},
		"Mcp-Method": {"tools/call"}, "Mcp-Name": {name},
	}
	a := w.begin(upstream+" replay", "", callDeadline)
	answer, err := w.http.RoundTrip(req)
	var raw []byte
	if err == nil {
		raw, err = io.ReadAll(answer.Body)
		_ = answer.Body.Close()
	}
	var message struct {
		Result rawToolResult
		Error  json.RawMessage
	}
	switch {
	case err != nil:
		a.Outcome, a.Error, a.Detail = unknown, "connection", err.Error()
	case json.Unmarshal(raw, &message) != nil || message.Error != nil || answer.StatusCode >= http.StatusBadRequest:
		a.Outcome, a.Error, a.Detail = failed, fmt.Sprint("status ", answer.StatusCode), string(raw)
	case message.Result.IsError:
		a.Outcome, a.Error, a.Detail = failed, "error of the replay", string(raw)
	default:
		a.Outcome = answered
	}
	w.history.end(a)
	return message.Result, err == nil && message.Result.ResultType+string(message.Error) != ""
}
