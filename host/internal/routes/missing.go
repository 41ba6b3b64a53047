package routes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// metaMissing is the member of `_meta` in an incomplete list result. It names the servers whose
	// items are missing.
	metaMissing = "dev.patchbay/missing"
	// maxMissingNamed limits the number of servers that a result names, maxMissingName the length
	// of each name.
	maxMissingNamed, maxMissingName = 20, 100
)

// missingLists describes the servers whose items are missing in a list.
type missingLists struct {
	servers  int            // of the caller
	starting int            // missing servers that may still become ready
	names    []string       // of the missing servers
	codes    []hosterr.Code // why each server is missing
}

// missing returns the servers whose list of this kind is not part of the catalogue.
func (m *Snapshot) missing(kind catalogue.Kind) *missingLists {
	missing := &missingLists{servers: len(m.servers.All)}
	for n, p := range m.servers.All {
		if m.lists[n][kind] != nil {
			continue
		}
		code := hosterr.CodeStarting // also if the list was read after the catalogue was merged
		if e, ok := errors.AsType[*hosterr.Error](p.Lists().Err(kind)); ok {
			code = e.Code
		}
		if code == hosterr.CodeStarting {
			missing.starting++
		}
		missing.names = append(missing.names, listing.Cut(p.Name(), maxMissingName))
		missing.codes = append(missing.codes, code)
	}
	return missing
}

// String describes the missing servers, such as "2 of 3 servers are still starting: everything, memory".
func (m *missingLists) String() string {
	var starting, failed []string
	for n, name := range m.names {
		if m.codes[n] == hosterr.CodeStarting {
			starting = append(starting, name)
		} else {
			failed = append(failed, fmt.Sprintf("%s (%s)", name, m.codes[n]))
		}
	}
	var parts []string
	for state, names := range map[string][]string{"are still starting": starting, "have failed": failed} {
		if n := len(names); n > 0 {
			text := strings.Join(names[:min(n, maxMissingNamed)], ", ")
			if n > maxMissingNamed {
				text += fmt.Sprintf(" and %d more", n-maxMissingNamed)
			}
			parts = append(parts, fmt.Sprintf("%d of %d servers %s: %s", n, m.servers, state, text))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

// appendTo returns the result of a list with a member `_meta` that names the missing servers. Without
// missing servers, it returns the result unchanged.
func (m *missingLists) appendTo(result mcp.RawResult) mcp.RawResult {
	if len(m.names) == 0 {
		return result
	}
	b := fmt.Appendf(slices.Clone(result[:len(result)-1]),
		`,"_meta":{%q:{"of":%d,"starting":%d,"failed":%d,"servers":[`,
		metaMissing, m.servers, m.starting, len(m.names)-m.starting)
	for n, name := range m.names[:min(len(m.names), maxMissingNamed)] {
		if n > 0 {
			b = append(b, ',')
		}
		b = jsonscan.AppendQuote(append(b, `{"server":`...), name)
		b = fmt.Appendf(b, `,"code":%q}`, m.codes[n])
	}
	return append(b, `]}}}`...)
}

// log sends a log message about the missing servers if the client requested warnings.
func (m *missingLists) log(ctx context.Context, req *mcp.Request) {
	if len(m.names) == 0 {
		return
	}
	asked, known := wire.LogSeverity(string(req.LogLevel()))
	warning, _ := wire.LogSeverity("warning")
	if req.Notify == nil || !known || asked > warning {
		return
	}
	b := []byte(`{"level":"warning","logger":"patchbay","data":`)
	b = jsonscan.AppendQuote(b, "The list is not complete: "+m.String())
	_ = req.Notify(ctx, "notifications/message", append(b, '}')) // best effort: the result names the servers too
}
