package legacy_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
)

// manyTools returns a list of tools as the core returns it.
func manyTools(n int, title string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"name":"tool_%04d","title":%q,"description":"Does what number %d does.","inputSchema":{"type":"object","properties":{"message":{"type":"string"},"any":true}}},`, i, title, i)
	}
	return `{"resultType":"complete","ttlMs":1000,"cacheScope":"public","tools":[` + strings.TrimSuffix(b.String(), ",") + `]}`
}

func listTools(t testing.TB, s *legacy.Session, buf []byte) []byte {
	x := new(legacy.Exchange)
	request := message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if reply := s.Begin(t.Context(), x, request, nil); reply != nil {
		t.Fatal(reply.Error)
	}
	buf, _ = x.AppendResponse(buf[:0])
	return buf
}

// A list is projected once for all sessions of a revision, and not mistaken for another list.
func TestListsAreCachedByRevision(t *testing.T) {
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	cfg := config(core)
	sessions := map[string]*legacy.Session{}
	for _, version := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
		sessions[version], _ = legacy.Initialize(t.Context(), cfg, initialize(version))
	}
	var buf []byte // reused, as transports do
	for _, title := range []string{"A", "A", "B", "A", "B", "B"} {
		core.result = manyTools(50, title)
		for version, s := range sessions {
			buf = listTools(t, s, buf)
			got := string(buf)
			titles := strings.Count(got, `"title":"`+title+`"`)
			if wanted := map[bool]int{true: 50, false: 0}[version >= "2025-06-18"]; titles != wanted {
				t.Errorf("%s: %d tools of 50 have the title %s, want %d", version, titles, title, wanted)
			}
			if strings.Contains(got, "ttlMs") || strings.Contains(got, `"any":true`) || strings.Count(got, `"name"`) != 50 {
				t.Errorf("%s: got %.300s", version, got)
			}
		}
	}
}

// A page that is cached differs from a page with other members after its array.
func TestPagesAreProjectedAsAWhole(t *testing.T) {
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	session, _ := legacy.Initialize(t.Context(), config(core), initialize("2025-11-25"))
	list := strings.TrimSuffix(manyTools(50, "T"), "}")
	tools := strings.ReplaceAll(list[strings.Index(list, `"tools"`):], `,"any":true`, `,"any":{}`)
	for range 2 { // projected, then cached
		for after, want := range map[string]string{
			`}`:                                  `}`,
			`,"nextCursor":"a"}`:                 `,"nextCursor":"a"}`,
			`,"nextCursor":"a]b"}`:               `,"nextCursor":"a]b"}`,
			`,"nextCursor":"]"}`:                 `,"nextCursor":"]"}`,
			`,"ttlMs":1,"cacheScope":"private"}`: `}`,
			`,"ttlMs":1,"nextCursor":"b","future":{}}`:   `,"nextCursor":"b","future":{}}`,
			`,"_meta":{"x/y":[1]},"nextCursor":"c"}`:     `,"_meta":{"x/y":[1]},"nextCursor":"c"}`,
			`,"resultType":"complete","nextCursor":"d"}`: `,"nextCursor":"d"}`,
			` , "nextCursor" : "e" } `:                   `,"nextCursor":"e"}`,
		} {
			core.result = list + after
			x := new(legacy.Exchange)
			if reply := session.Begin(t.Context(), x, message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`), nil); reply != nil {
				t.Fatal(reply.Error)
			}
			answer, _ := x.AppendResponse(nil)
			got := strings.TrimSuffix(strings.TrimPrefix(string(answer), `{"jsonrpc":"2.0","id":1,"result":`), `}`)
			if wanted := "{" + tools + want; got != wanted {
				t.Errorf("%s: got\n%s, want\n%s", after, got, wanted)
			}
		}
	}
	bare := strings.Replace(list, `"resultType":"complete",`, "", 1)
	core.result = bare + `}`
	listTools(t, session, nil)
	core.result = bare + `,"resultType":"input_required"}`
	if got := string(listTools(t, session, nil)); !strings.Contains(got, `"error"`) {
		t.Errorf("input required: got %.300s", got)
	}
}

// More pages than the cache holds are projected again.
func TestPagesThatAreNotCachedAreProjected(t *testing.T) {
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	session, _ := legacy.Initialize(t.Context(), config(core), initialize("2025-11-25"))
	for range 2 {
		for page := range 12 {
			core.result = manyTools(5000, fmt.Sprint(page))
			if got := listTools(t, session, nil); strings.Count(string(got), fmt.Sprintf(`"title":"%d"`, page)) != 5000 {
				t.Fatalf("page %d: got %.300s", page, got)
			}
		}
	}
}

func BenchmarkListOfTools(b *testing.B) {
	for _, n := range []int{1000, 10_000} { // the second has 2 MB
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
			session, _ := legacy.Initialize(b.Context(), config(core), initialize("2025-11-25"))
			core.result = manyTools(n, "T")
			var buf []byte
			b.SetBytes(int64(len(core.result)))
			b.ReportAllocs()
			for b.Loop() {
				buf = listTools(b, session, buf)
			}
		})
	}
}

// BenchmarkPagesOfTools lists 1000 tools in ten pages.
func BenchmarkPagesOfTools(b *testing.B) {
	const pages, perPage = 10, 100
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	session, _ := legacy.Initialize(b.Context(), config(core), initialize("2025-11-25"))
	var lists []string
	for page := range pages {
		lists = append(lists, strings.TrimSuffix(manyTools(perPage, fmt.Sprint(page)), "}"))
	}
	var buf []byte
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		core.result = fmt.Sprintf(`%s,"nextCursor":"cursor-%020d"}`, lists[n%pages], n%pages)
		buf = listTools(b, session, buf)
	}
}
