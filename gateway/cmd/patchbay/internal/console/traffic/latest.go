package traffic

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
)

const (
	// maxSearched limits the exchanges that [Latest] searches for the exchanges of a server.
	maxSearched = 100
	// maxBrief bounds a message beside a tool, in bytes.
	maxBrief = 4 << 10
)

// A Recent is an exchange in the list beside a tool. The list shows the messages, and cuts long messages.
type Recent struct {
	Row
	ring *capture.Ring
}

// Latest returns at most n exchanges with a server, the newest first: messages and HTTP requests, without the requests
// of callers to this program, and without processes. The exchanges contain data of other callers, so the caller must
// show the exchanges only to operators.
func Latest(ring *capture.Ring, server string, n int) (all []*Recent) {
	query, err := capture.ParseQuery(`server:"` + server + `"`)
	if err != nil {
		query = nil // the name contains a quotation mark: search all servers
	}
	for _, x := range ring.Find(query, 0, maxSearched) {
		if x.Server != server || x.Hop == capture.Downstream || x.Hop == capture.Process || len(all) == n {
			continue
		}
		row := screen{ring: ring}.exchangeRow(x, "", "", 0)
		row.Element = "wire-" + row.Element
		all = append(all, &Recent{row, ring})
	}
	return all
}

// Version changes with the content of the row.
func (x *Recent) Version() string { return fmt.Sprint(x.ID, x.Status, x.Frames, x.End) }

// CanReplay reports whether the request can be sent again.
func (x *Recent) CanReplay() bool {
	_, err := x.ring.Request(x.ID)
	return err == nil
}

// Messages returns the frames of the exchange that the ring still contains. Long texts are cut, so the page
// must link to the exchange.
func (x *Recent) Messages() []frameRow {
	_, frames, _ := x.ring.Get(x.ID)
	rows := framesOf(&x.Exchange, frames)
	for i := range rows {
		rows[i].Text, rows[i].Pretty = brief(rows[i].Text), brief(rows[i].Pretty)
	}
	return rows
}

func brief(text string) string {
	if len(text) <= maxBrief {
		return text
	}
	return strings.ToValidUTF8(text[:maxBrief], "") + "…"
}

// framesOf returns the rows of the frames of an exchange.
func framesOf(x *capture.Exchange, frames []capture.Frame) []frameRow {
	rows := make([]frameRow, 0, len(frames))
	for _, f := range frames {
		row := frameRow{Frame: f, Arrow: "←", After: shortDuration(f.Time.Sub(x.Queued))}
		if f.Sent {
			row.Arrow = "→"
		}
		if pretty := jsontext.Value(f.Text); pretty.Indent() == nil {
			row.Pretty = string(pretty)
		}
		rows = append(rows, row)
	}
	return rows
}
