package result

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// keptTime is how long a large result is kept.
	keptTime = 15 * time.Minute
	// maxKept limits the large results of all callers, in bytes, and maxKeptPerPrincipal limits the
	// results of each principal. They must stay in memory: nobody reads them from a disk, or after a restart.
	maxKept, maxKeptPerPrincipal = 256 << 20, 64 << 20
	// pageSize is the size of a page in bytes: less than clients are known to accept, with escapes.
	pageSize = 256 << 10
	// Prefix begins the URIs of pages. No URI of a server begins with it, because a name follows its //.
	Prefix = "patchbay:///results/"
	// metaResult is the member of `_meta` with the size of a large result, its page and its pages.
	metaResult = "dev.patchbay/result"
)

// keptResults holds the large results of callers. It is safe for concurrent use.
type keptResults struct {
	mu    sync.Mutex     // guards the fields below
	all   []*keptResult  // the oldest first
	bytes map[string]int // by principal
	total int
	timer *time.Timer // for the end of the oldest result; nil without results
}

// A keptResult is a large result that one principal can read for a while. It never changes.
type keptResult struct {
	token, principal, server string
	mimeType                 string
	text                     []byte // UTF-8
	page                     int    // bytes
	expires                  time.Time
}

// add keeps a result. If there is no room, it removes older results of the principal with the most bytes.
// It reports whether the result is small enough.
func (s *keptResults) add(r *keptResult) bool {
	if len(r.text) > maxKeptPerPrincipal {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpiredLocked()
	for s.bytes[r.principal]+len(r.text) > maxKeptPerPrincipal {
		s.removeOldestLocked(r.principal)
	}
	for s.total+len(r.text) > maxKept {
		most := ""
		for principal, n := range s.bytes {
			if most == "" || n > s.bytes[most] {
				most = principal
			}
		}
		s.removeOldestLocked(most)
	}
	if s.bytes == nil {
		s.bytes = map[string]int{}
	}
	s.all = append(s.all, r)
	s.bytes[r.principal] += len(r.text)
	s.total += len(r.text)
	s.scheduleLocked()
	return true
}

// get returns the result with a token, or nil if the principal may not read such a result.
func (s *keptResults) get(principal, token string) *keptResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpiredLocked()
	for _, r := range s.all {
		if r.token == token && r.principal == principal {
			return r
		}
	}
	return nil
}

// size returns the number of results, and their bytes.
func (s *keptResults) size() (results, size int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeExpiredLocked()
	return len(s.all), s.total
}

// removeOldestLocked removes the oldest result of a principal.
func (s *keptResults) removeOldestLocked(principal string) {
	s.removeLocked(slices.IndexFunc(s.all, func(r *keptResult) bool { return r.principal == principal }))
}

// removeExpiredLocked removes the results whose time has ended.
func (s *keptResults) removeExpiredLocked() {
	for now := time.Now(); len(s.all) > 0 && !now.Before(s.all[0].expires); {
		s.removeLocked(0)
	}
}

func (s *keptResults) removeLocked(i int) {
	r := s.all[i]
	s.all = slices.Delete(s.all, i, i+1)
	s.total -= len(r.text)
	if s.bytes[r.principal] -= len(r.text); s.bytes[r.principal] == 0 {
		delete(s.bytes, r.principal)
	}
}

// scheduleLocked removes the oldest result at its end.
func (s *keptResults) scheduleLocked() {
	if s.timer != nil || len(s.all) == 0 {
		return
	}
	s.timer = time.AfterFunc(time.Until(s.all[0].expires), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.timer = nil
		s.removeExpiredLocked()
		s.scheduleLocked()
	})
}

// close removes all results.
func (s *keptResults) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all, s.bytes, s.total = nil, nil, 0
	if s.timer != nil {
		s.timer.Stop()
	}
}

// keptText returns the text that a caller reads: the text of the result if the result contains only a text,
// else its JSON.
func keptText(raw mcp.RawResult) (text []byte, mimeType string) {
	content, _ := jsonscan.Get(raw, "content")
	blocks := 0
	var only string
	if jsonscan.Kind(content) == '[' {
		for block := range jsonscan.Elements(content) {
			blocks++
			if kind, _ := jsonscan.Get(block, "type"); string(kind) == `"text"` {
				only = jsonscan.GetString(block, "text")
			}
		}
	}
	if blocks == 1 && only != "" && !jsonscan.Has(raw, "structuredContent") {
		return []byte(strings.ToValidUTF8(only, "\uFFFD")), "text/plain"
	}
	return bytes.ToValidUTF8(bytes.Clone(raw), []byte("\uFFFD")), "application/json"
}

func (s *keptResult) pages() int { return max(1, (len(s.text)+s.page-1)/s.page) }

func (s *keptResult) uri(page int) string { return Prefix + s.token + "/" + strconv.Itoa(page) }

// at returns the text of a page. A page must not begin or end within a character.
func (s *keptResult) at(page int) []byte {
	boundary := func(n int) int {
		n = min(n, len(s.text))
		for n < len(s.text) && !utf8.RuneStart(s.text[n]) {
			n++
		}
		return n
	}
	return s.text[boundary((page-1)*s.page):boundary(page*s.page)]
}

// callResult returns the result that a caller receives in place of a large result. It is an error for a tool
// with an output schema, because clients require structured content in every other result of the tool.
func (s *keptResult) callResult(raw mcp.RawResult, l *config.CallerLimits, item *catalogue.Item) mcp.RawResult {
	isError, _ := jsonscan.Get(raw, "isError")
	failed := string(isError) == "true" || item != nil && jsonscan.Has(item.Raw, "outputSchema")
	pages := s.pages()
	text := fmt.Sprintf("The tool has run. Its result has %d bytes, more than limits.resultBytes of %v. "+
		"It can be read with resources/read for %v, in %d pages: %s to %s", len(raw), l.ResultBytes, keptTime, pages,
		s.uri(1), s.uri(pages))
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","content":[{"type":"text","text":`), text)
	b = jsonscan.AppendQuote(append(b, `},{"type":"resource_link","name":"result","uri":`...), s.uri(1))
	b = jsonscan.AppendQuote(append(b, `,"description":`...), fmt.Sprintf("page 1 of %d", pages))
	b = jsonscan.AppendQuote(append(b, `,"mimeType":`...), s.mimeType)
	b = fmt.Appendf(b, `,"size":%d}],"isError":%t,"_meta":{"%s":`, len(s.text), failed, metaResult)
	return append(append(b, s.meta(1)...), "}}"...)
}

// meta returns the position of a page in the result.
func (s *keptResult) meta(page int) json.RawMessage {
	next := ""
	if page < s.pages() {
		next = s.uri(page + 1)
	}
	b, err := json.Marshal(struct {
		Size  int    `json:"size"`
		Page  int    `json:"page"`
		Pages int    `json:"pages"`
		Next  string `json:"next,omitzero"`
	}{len(s.text), page, s.pages(), next})
	if err != nil {
		panic(err) // numbers and strings always encode
	}
	return b
}

// contents returns the result of resources/read for a page.
func (s *keptResult) contents(page int) mcp.Result {
	b := jsonscan.AppendQuote([]byte(`{"resultType":"complete","contents":[{"uri":`), s.uri(page))
	b = jsonscan.AppendQuote(append(b, `,"mimeType":`...), s.mimeType)
	b = jsonscan.AppendQuote(append(b, `,"text":`...), string(s.at(page)))
	b = append(append(b, `}],"ttlMs":0,"cacheScope":"private","_meta":{"`+metaResult+`":`...), s.meta(page)...)
	return mcp.RawResult(append(b, "}}"...))
}

// A Page is a part of a kept result.
type Page struct {
	Server string // that sent the result
	result *keptResult
	number int
}
