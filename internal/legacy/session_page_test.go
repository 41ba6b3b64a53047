package legacy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// manyTools is a list of tools as the core gives it.
func manyTools(n int, title string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"name":"tool_%04d","title":%q,"description":"Does what number %d does.","inputSchema":{"type":"object","properties":{"message":{"type":"string"},"any":true}}},`, i, title, i)
	}
	return `{"resultType":"complete","ttlMs":1000,"cacheScope":"public","tools":[` + strings.TrimSuffix(b.String(), ",") + `]}`
}

func listTools(t testing.TB, s *legacy.Session, room []byte) []byte {
	x := new(legacy.Exchange)
	request := message(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`)
	if reply := s.Begin(t.Context(), x, request, nil); reply != nil {
		t.Fatal(reply.Error)
	}
	room, _ = x.AppendAnswer(room[:0])
	return room
}

// A list is projected once for all sessions of a revision, and never stands for another one.
func TestListsAreThoseOfTheCore(t *testing.T) {
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	cfg := config(core)
	sessions := map[string]*legacy.Session{}
	for _, version := range []string{"2024-11-05", "2025-06-18", "2025-11-25"} {
		sessions[version], _ = legacy.Initialize(t.Context(), cfg, initialize(version))
	}
	var room []byte // used again, as transports do
	for _, title := range []string{"A", "A", "B", "A", "B", "B"} {
		core.result = manyTools(50, title)
		for version, s := range sessions {
			room = listTools(t, s, room)
			got := string(room)
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

// A pageCore keeps the items of its list, and leaves them out of what it appends.
type pageCore struct {
	fakeCore
	items []byte
}

func (c *pageCore) Serve(_ context.Context, dst []byte, r legacy.Round) ([]byte, *jsonrpc.Error) {
	var env wire.Envelope
	if _, err := r.Open(&env); err != nil {
		return nil, err
	}
	if env.Page == nil {
		return append(dst, discovered...), nil
	}
	dst = append(dst, `{"resultType":"complete","tools":`...)
	env.Page.Items, env.Page.At = c.items, len(dst)
	return append(dst, `,"ttlMs":1000}`...), nil
}

// Items that the core leaves out are those that it keeps now, though they may be as long as those before.
func TestItemsThatTheCoreKeeps(t *testing.T) {
	core := &pageCore{}
	session, _ := legacy.Initialize(t.Context(), config(core), initialize("2025-11-25"))
	items := func(title string) []byte {
		return []byte(`[` + strings.Repeat(`{"name":"`+title+`"},`, 200) + `{"name":"last"}]`)
	}
	a, b := items("a"), items("b")
	var room []byte
	for i, items := range [][]byte{a, a, b, b, a, items("longer"), []byte(`[]`), a} {
		core.items = items
		room = listTools(t, session, room)
		if want := `{"jsonrpc":"2.0","id":1,"result":{"tools":` + string(items) + `}}`; string(room) != want {
			t.Errorf("%d: got %.120s, want %.120s", i, room, want)
		}
	}
}

func BenchmarkListOfAThousandTools(b *testing.B) {
	core := &cannedCore{fakeCore: fakeCore{discovered: discovered}, result: discovered}
	session, _ := legacy.Initialize(b.Context(), config(core), initialize("2025-11-25"))
	core.result = manyTools(1000, "T")
	var room []byte
	b.SetBytes(int64(len(core.result)))
	b.ReportAllocs()
	for b.Loop() {
		room = listTools(b, session, room)
	}
}
