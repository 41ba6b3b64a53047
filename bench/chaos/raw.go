package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A response is an HTTP response whose body was read, or the error in its place.
type response struct {
	status  int
	header  http.Header
	body    string
	outcome outcome
}

// send sends a request and records it as an attempt. A client without an SDK knows only this: a
// response with a status of success is an answer, 429 and 503 say that nothing was done, and an
// error of the server or of the connection that something may have been done.
func (w *worker) send(ctx context.Context, client *http.Client, req *http.Request, op, nonce string) (r response) {
	a := w.begin(op, nonce, callTimeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	res, err := client.Do(req.WithContext(ctx))
	if err == nil {
		var body []byte
		body, err = io.ReadAll(res.Body)
		_ = res.Body.Close()
		r = response{status: res.StatusCode, header: res.Header, body: string(body)}
	}
	switch {
	case err != nil:
		r = response{outcome: unknown}
		a.Error, a.Detail = "connection", err.Error()
	case r.status < 400:
		r.outcome = answered
	case strings.Contains(r.body, "temporarily_unavailable"): // the store failed, perhaps after the write
		r.outcome = unknown
	case r.status == http.StatusTooManyRequests, r.status == http.StatusServiceUnavailable:
		r.outcome = unsent
	case r.status >= 500:
		r.outcome = unknown
	default:
		r.outcome = failed
	}
	if a.Outcome = r.outcome; r.outcome != answered && err == nil {
		a.Error, a.Detail = fmt.Sprint("status ", r.status), r.body
	}
	w.history.end(a)
	return r
}

func (w *worker) post(ctx context.Context, path, body string, header http.Header, op, nonce string) response {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+path, strings.NewReader(body))
	if err != nil {
		panic(err) // the URL is valid
	}
	req.Header = header
	return w.send(ctx, &http.Client{Transport: w.http}, req, op, nonce)
}

// callRaw calls a tool in the modern era. more is further members of the params.
func (w *worker) callRaw(ctx context.Context, token, tool, nonce, more, op string) response {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":{"nonce":%q},%s`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":%q,`+
		`"io.modelcontextprotocol/clientCapabilities":{"elicitation":{"form":{}}}}}}`, tool, nonce, more, revisions[0])
	return w.post(ctx, "/mcp", body, http.Header{
		"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"},
		"Accept": {"application/json, text/event-stream"}, "Mcp-Protocol-Version": {revisions[0]},
		"Mcp-Method": {"tools/call"}, "Mcp-Name": {tool},
	}, op, nonce)
}

// A rawResult is the part of a response that the checks need.
type rawResult struct {
	Result struct {
		ResultType   string `json:"resultType"`
		RequestState string `json:"requestState"`
		Content      []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"result"`
	Error *struct {
		Code int `json:"code"`
	} `json:"error"`
}

func (r response) result() (m rawResult) {
	_ = json.Unmarshal([]byte(r.body), &m) // an invalid body has no result
	return m
}

func (m *rawResult) text() string {
	if len(m.Result.Content) == 0 {
		return ""
	}
	return m.Result.Content[0].Text
}

// replay answers one question several times: at once, after a while, and as another principal. The
// server must accept one answer, also if it was restarted in between.
func (w *worker) replay(ctx context.Context) {
	nonce := w.nonce()
	asked := w.callRaw(ctx, tokenOf(w.principal), "ask", nonce, "", "raw ask").result()
	state := asked.Result.RequestState
	if asked.Result.ResultType != "input_required" || state == "" {
		return
	}
	w.sleep(ctx, time.Second) // in which the server may be restarted
	stranger := principals[(w.number+1+w.random.IntN(2))%len(principals)]
	if stranger != w.principal && w.random.IntN(2) == 0 {
		if w.answer(ctx, stranger, nonce, state) == answered {
			w.history.violate("crossed: the state of a principal was accepted from another", nonce)
		}
	}
	if w.random.IntN(2) == 0 {
		w.useAnswer(ctx, nonce, state, false)
		w.sleep(ctx, 3*time.Second)
		w.useAnswer(ctx, nonce, state, true)
		return
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { w.useAnswer(ctx, nonce, state, true) })
	}
	both.Wait()
}

func (w *worker) useAnswer(ctx context.Context, nonce, state string, again bool) {
	u := singleUse{Begin: w.history.now(), Chain: nonce, Kind: "answer", Secret: state, Again: again}
	for range maxTries {
		if u.Outcome = w.answer(ctx, w.principal, nonce, state); u.Outcome != unsent {
			break
		}
		time.Sleep(unsentPause)
	}
	u.End = w.history.now()
	u.Result = fmt.Sprint(u.Begin) // each acceptance is one of its own
	w.history.use(u)
}

// answer sends an answer and returns whether it was accepted.
func (w *worker) answer(ctx context.Context, principal, nonce, state string) outcome {
	more := fmt.Sprintf(`"requestState":%q,"inputResponses":{"word":{"action":"accept","content":{"value":%q}}},`,
		state, wordFor(nonce))
	r := w.callRaw(ctx, tokenOf(principal), "ask", nonce, more, opAnswer)
	m := r.result()
	switch {
	case r.outcome != answered:
		return r.outcome
	case m.Error != nil && m.Error.Code == mcp.CodeInternalError: // the store did not answer
		return unknown
	case m.Error != nil || m.Result.ResultType != "complete":
		return failed
	}
	if want := answerText(w.principal, nonce) + " " + wordFor(nonce); m.text() != want {
		w.history.violate("crossed: an answer to a question got the result of another", r.body)
	}
	return answered
}
