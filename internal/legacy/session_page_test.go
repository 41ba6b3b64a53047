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

func BenchmarkListOfAThousandTools(b *testing.B) {
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	session, _ := legacy.Initialize(b.Context(), config(core), initialize("2025-11-25"))
	core.result = manyTools(1000, "T")
	var buf []byte
	b.SetBytes(int64(len(core.result)))
	b.ReportAllocs()
	for b.Loop() {
		buf = listTools(b, session, buf)
	}
}
