package cmdutil

import (
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// ReportFailed prints the failed servers of @host, whose items are missing in lists.
func ReportFailed(f *Factory) {
	t := f.Client.Current.Load()
	if t.Host != nil && t.Host.ReportFailed != nil && f.Client.Shell == nil && !f.Observe.Completing {
		t.Host.ReportFailed()
	}
}

// MayLack reports whether a tool may belong to a server whose items are missing in the last list.
// Names of a gateway's tools begin with the name of their server: if the list contains a tool with
// the same prefix, the server is not missing.
func MayLack(f *Factory, listed []*mcp.Tool, name string) bool {
	server, _, prefixed := strings.Cut(name, "__")
	return f.Client.Missing.Load() != nil && !(prefixed && slices.ContainsFunc(listed, func(t *mcp.Tool) bool {
		return strings.HasPrefix(t.Name, server+"__")
	}))
}

// ReportIncomplete prints the servers whose items are missing in the last list. It returns an error unless all of them
// only require a login.
func ReportIncomplete(f *Factory) error {
	m := f.Client.Missing.Load()
	if m == nil || f.Observe.Completing {
		return nil
	}
	var starting, failed, login []string
	for _, s := range m.Servers {
		switch name := term.Shorten(term.CleanLine(s.Server), term.MaxNameShown); s.Code {
		case "starting":
			starting = append(starting, name)
		case "auth_required":
			login = append(login, name)
		default:
			failed = append(failed, name+" ("+term.Shorten(term.CleanLine(s.Code), term.MaxNameShown)+")")
		}
	}
	show := func(count int, what string, names []string) {
		if count > 0 {
			text := strings.Join(names, ", ")
			if len(names) < count {
				text += fmt.Sprintf(" and %d more", count-len(names))
			}
			f.IO.Err.Printf("patchbay: the list is not complete: %d of %d servers %s: %s", count, m.Of, what, text)
		}
	}
	show(m.Starting, "are still starting", starting)
	show(m.Failed-len(login), "have failed", failed)
	show(len(login), "require a login", login)
	if m.Starting+m.Failed <= len(login) {
		return nil
	}
	return &exit.Error{Code: exit.Incomplete, Err: exit.ErrShown}
}
