package host

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// spillTime is how long a large result is kept.
	spillTime = 15 * time.Minute
	// maxSpilled bounds the large results of all callers, in bytes, and maxSpilledPerPrincipal those of
	// one. They are kept in memory only: nothing of them is on a disk, or there after a restart.
	maxSpilled, maxSpilledPerPrincipal = 256 << 20, 64 << 20
	// spillPage is the size of a page in bytes: less than clients are known to accept, with escapes.
	spillPage = 256 << 10
	// spillPrefix begins the URIs of pages. No server has it: the URIs of servers have a name after //.
	spillPrefix = "patchbay:///results/"
	// metaResult is the member of `_meta` with the size of a large result, its page and its pages.
	metaResult = "dev.patchbay/result"
)

// spilledResults are the large results of callers. It is safe for concurrent use.
type spilledResults struct {
	mu    sync.Mutex       // guards the fields below
	all   []*spilledResult // the oldest first
	bytes map[string]int   // by principal
	total int
	timer *time.Timer // for the end of the oldest; nil if there is none
}

// A spilledResult is a large result that one principal can read for a while. It never changes.
type spilledResult struct {
	token, principal, server string
	mimeType                 string
	text                     []byte // UTF-8
	page                     int    // bytes
	expires                  time.Time
}

// add keeps a result, in place of older ones of the principal with the most bytes if there is no room.
// It reports whether the result is small enough.
func (s *spilledResults) add(r *spilledResult) bool {
	if len(r.text) > maxSpilledPerPrincipal {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	for s.bytes[r.principal]+len(r.text) > maxSpilledPerPrincipal {
		s.removeOldest(r.principal)
	}
	for s.total+len(r.text) > maxSpilled {
		most := ""
		for principal, n := range s.bytes {
			if most == "" || n > s.bytes[most] {
				most = principal
			}
		}
		s.removeOldest(most)
	}
	if s.bytes == nil {
		s.bytes = map[string]int{}
	}
	s.all = append(s.all, r)
	s.bytes[r.principal] += len(r.text)
	s.total += len(r.text)
	s.schedule()
	return true
}

// get returns the result with a token, nil if the principal has none.
func (s *spilledResults) get(principal, token string) *spilledResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	for _, r := range s.all {
		if r.token == token && r.principal == principal {
			return r
		}
	}
	return nil
}

// size returns how many results there are, and their bytes.
func (s *spilledResults) size() (results, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpired()
	return len(s.all), s.total
}

// removeOldest removes the oldest result of a principal. The lock is held.
func (s *spilledResults) removeOldest(principal string) {
	s.remove(slices.IndexFunc(s.all, func(r *spilledResult) bool { return r.principal == principal }))
}

// removeExpired removes the results whose time has ended. The lock is held.
func (s *spilledResults) removeExpired() {
	for now := time.Now(); len(s.all) > 0 && !now.Before(s.all[0].expires); {
		s.remove(0)
	}
}

func (s *spilledResults) remove(i int) {
	r := s.all[i]
	s.all = slices.Delete(s.all, i, i+1)
	s.total -= len(r.text)
	if s.bytes[r.principal] -= len(r.text); s.bytes[r.principal] == 0 {
		delete(s.bytes, r.principal)
	}
}

// schedule removes the oldest result at its end. The lock is held.
func (s *spilledResults) schedule() {
	if s.timer != nil || len(s.all) == 0 {
		return
	}
	s.timer = time.AfterFunc(time.Until(s.all[0].expires), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = nil
		s.removeExpired()
		s.schedule()
	})
}

// close removes all results.
func (s *spilledResults) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.bytes, s.total = nil, nil, 0
	if s.timer != nil {
		s.timer.Stop()
	}
}

// resultSize returns the size of what a server has responded with.
func resultSize(res mcp.Result, err error) config.Size {
	if fault, ok := errors.AsType[*mcp.Error](err); ok && fault.Remote() {
		return config.Size(len(fault.Message) + len(fault.Data))
	}
	raw, _ := res.(mcp.RawResult)
	return config.Size(len(raw))
}

// limitResult refuses a result that is larger than allowed, or keeps it and returns a link to it. It runs
// after the policy, so that a kept result contains only what the policy leaves.
func (h *Host) limitResult(_ context.Context, c *call.Call, res mcp.Result, failed error) (mcp.Result, error) {
	l := h.callerLimits()
	if l.Result == config.ResultSpill {
		return viewOf(c).spill(c.Request, c, l, res, failed)
	}
	return viewOf(c).checkResult(c, l, res, failed)
}

// checkResult returns an error for a response that is larger than allowed.
func (v *View) checkResult(
	r *call.Call, l *config.CallerLimits, res mcp.Result, failed error,
) (mcp.Result, error) {
	size := resultSize(res, failed)
	if l.ResultBytes == 0 || size <= l.ResultBytes || r.Own {
		return res, failed
	}
	return nil, tooLarge(poolOf(r), size, l, "")
}

func tooLarge(p *upstream.Pool, size config.Size, l *config.CallerLimits, reason string) error {
	e := p.Limits().Refuse(hosterr.CodeTooLarge, "limits.resultBytes", 0,
		"the result has %d bytes, more than limits.resultBytes of %v%s", size, l.ResultBytes, reason)
	e.MayHaveRun = true
	return e
}

// spill keeps the result of a tool that is larger than allowed, and returns one that links to it.
func (v *View) spill(
	req *mcp.Request, r *call.Call, l *config.CallerLimits, res mcp.Result, failed error,
) (mcp.Result, error) {
	size := resultSize(res, failed)
	raw, ok := res.(mcp.RawResult)
	if size <= l.ResultBytes || failed != nil || !ok || req.Method != methodToolsCall ||
		raw.ResultType() != driver.ResultComplete {
		return v.checkResult(r, l, res, failed)
	}
	s := &spilledResult{token: rand.Text(), principal: v.principal, server: poolOf(r).Name(),
		page: max(min(spillPage, int(l.ResultBytes/2)), utf8.UTFMax), expires: time.Now().Add(spillTime)}
	s.text, s.mimeType = spilledText(raw)
	if !v.host.spilled.add(s) {
		return nil, tooLarge(poolOf(r), size, l, fmt.Sprintf(", and than the %v that are kept of one caller",
			config.Size(maxSpilledPerPrincipal)))
	}
	poolOf(r).Limits().Count("limits.resultBytes")
	return s.callResult(raw, l, r), nil
}

// spilledText returns what a caller reads of a result: the text, if that is all, else the JSON.
func spilledText(raw mcp.RawResult) (text []byte, mimeType string) {
	content, _ := jsonscan.Get(raw, "content")
	blocks := 0
	var only string
	if jsonscan.Kind(content) == '[' {
		for block := range jsonscan.Elements(content) {
			blocks++
			if kind, _ := jsonscan.Get(block, "type"); string(kind) == `"text"` {
				value, _ := jsonscan.Get(block, "text")
				only, _ = jsonscan.Unquote(value)
			}
		}
	}
	if blocks == 1 && only != "" && !jsonscan.Has(raw, "structuredContent") {
		return []byte(strings.ToValidUTF8(only, "\uFFFD")), "text/plain"
	}
	return bytes.ToValidUTF8(bytes.Clone(raw), []byte("\uFFFD")), "application/json"
}

func (s *spilledResult) pages() int { return max(1, (len(s.text)+s.page-1)/s.page) }

func (s *spilledResult) uri(page int) string { return spillPrefix + s.token + "/" + strconv.Itoa(page) }

// at returns the text of a page, which begins and ends between characters.
func (s *spilledResult) at(page int) []byte {
	boundary := func(n int) int {
		n = min(n, len(s.text))
		for n < len(s.text) && !utf8.RuneStart(s.text[n]) {
			n++
		}
		return n
	}
	return s.text[boundary((page-1)*s.page):boundary(page*s.page)]
}

// callResult returns the result that a caller receives in place of a large one. Clients require a structured
// result of a tool with an output schema, except in an error.
func (s *spilledResult) callResult(raw mcp.RawResult, l *config.CallerLimits, r *call.Call) mcp.RawResult {
	isError, _ := jsonscan.Get(raw, "isError")
	failed := string(isError) == "true" || r.Item != nil && jsonscan.Has(r.Item.Raw, "outputSchema")
	pages := s.pages()
	text := fmt.Sprintf("The tool has run. Its result has %d bytes, more than limits.resultBytes of %v. "+
		"It can be read with resources/read for %v, in %d pages: %s to %s", len(raw), l.ResultBytes, spillTime, pages,
		s.uri(1), s.uri(pages))
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	b = jsonscan.AppendQuote(append(b, `},{"type":"resource_link","name":"result","uri":`...), s.uri(1))
	b = jsonscan.AppendQuote(append(b, `,"description":`...), fmt.Sprintf("page 1 of %d", pages))
	b = jsonscan.AppendQuote(append(b, `,"mimeType":`...), s.mimeType)
	b = fmt.Appendf(b, `,"size":%d}],"isError":%t,"_meta":{"%s":`, len(s.text), failed, metaResult)
	return append(append(b, s.meta(1)...), "}}"...)
}

// meta returns where a page is in the result.
func (s *spilledResult) meta(page int) json.RawMessage {
	next := ""
	if page < s.pages() {
		next = s.uri(page + 1)
	}
	return mustJSON(struct {
		Size  int    `json:"size"`
		Page  int    `json:"page"`
		Pages int    `json:"pages"`
		Next  string `json:"next,omitzero"`
	}{len(s.text), page, s.pages(), next})
}

// readSpilled serves a read of a page of a large result. All others than the principal of the result
// receive the error of a resource that does not exist. The policy has decided about the result.
func (v *View) readSpilled(ctx context.Context, req *mcp.Request, uri string) (mcp.Result, error) {
	token, number, _ := strings.Cut(strings.TrimPrefix(uri, spillPrefix), "/")
	page, err := strconv.Atoi(cmp.Or(number, "1"))
	s := v.host.spilled.get(v.principal, token)
	if s == nil || err != nil || page < 1 || page > s.pages() {
		return nil, v.refused(req, policy.ActionRead, uri, mcp.NotFound(uri))
	}
	p := v.poolNamed(s.server)
	if p == nil {
		return nil, v.refused(req, policy.ActionRead, uri, mcp.NotFound(uri))
	}
	return v.send(ctx, req, &call.Call{Kind: policy.ActionRead, Pool: p, Target: uri, Own: true,
		Local: func(context.Context) (mcp.Result, error) { return s.contents(page), nil }})
}

func (s *spilledResult) contents(page int) mcp.Result {
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","contents":[{"uri":`), s.uri(page))
	b = jsonscan.AppendQuote(append(b, `,"mimeType":`...), s.mimeType)
	b = jsonscan.AppendQuote(append(b, `,"text":`...), string(s.at(page)))
	b = append(append(b, `}],"ttlMs":0,"cacheScope":"private","_meta":{"`+metaResult+`":`...), s.meta(page)...)
	return mcp.RawResult(append(b, "}}"...))
}
