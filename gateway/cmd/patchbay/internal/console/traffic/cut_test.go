package traffic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Messages whose ends are not compared are not equal: neither after many lines, nor if they are recorded
// incompletely.
func TestComparisonsOfLongMessagesAreCut(t *testing.T) {
	mcptest.NoLeaks(t)
	ring := capture.New(&capture.Options{Always: true})
	c, err := mcp.Connect(t.Context(), ring.Connect(mcp.InMemory(mcp.NewServer("srv", "1", nil)), "srv", "ann"), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	many, long := strings.Repeat("0,", 2100), strings.Repeat("x", 300_000)
	for _, end := range []string{many + "1", many + "2", `"` + long + `1"`, `"` + long + `2"`} {
		_, _ = c.Do(t.Context(), "example/none", json.RawMessage(`{"all":[`+end+`]}`))
	}
	q, _ := capture.ParseQuery("method:example/none")
	found := ring.Find(q, 0, 10) // the newest first
	if len(found) != 4 {
		t.Fatalf("got %d exchanges, want 4", len(found))
	}
	s := consoletest.New(t, func(o *console.Options) { o.Capture = ring })
	for i, want := range map[int]string{0: "is recorded incompletely", 2: "only the first 2000 lines"} {
		path := fmt.Sprintf("/traffic?id=%d&with=%d", found[i].ID, found[i+1].ID)
		_, page := s.Send(s.Browser(), http.MethodGet, path, nil)
		if !strings.Contains(page, want) || strings.Contains(page, "The messages are equal") {
			t.Errorf("%s: the comparison does not say %q", path, want)
		}
	}
}
