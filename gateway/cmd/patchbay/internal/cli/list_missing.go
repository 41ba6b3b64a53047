package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// metaMissing is the member of `_meta` in which a gateway names the servers whose items are missing in a list.
const metaMissing = "dev.patchbay/missing"

// A missingServers names the servers of a gateway whose items are missing in a list. It is untrusted data of the peer.
type missingServers struct {
	Of       int `json:"of"`
	Starting int `json:"starting"`
	Failed   int `json:"failed"`
	Servers  []struct {
		Server string `json:"server"`
		Code   string `json:"code"`
	} `json:"servers"`
}

// noteMissing records the missing servers that a page of a list names.
func (d *dialer) noteMissing(page mcp.RawResult, isFirst bool) {
	if isFirst {
		d.missing.Store(nil)
	}
	meta, _ := rawjson.Get(page, "_meta")
	raw, ok := rawjson.Get(meta, metaMissing)
	m := &missingServers{}
	if ok && json.Unmarshal(raw, m) == nil && m.Starting >= 0 && m.Failed >= 0 && m.Starting+m.Failed > 0 {
		d.missing.Store(m)
	}
}

// mayLack reports whether a tool may belong to a server whose items are missing in the last list. The names of a
// gateway's tools begin with the name of their server: if a listed tool has the prefix of name, that server is not
// missing.
func mayLack(f *factory, listed []*mcp.Tool, name string) bool {
	server, _, prefixed := strings.Cut(name, "__")
	return f.Client.missing.Load() != nil && !(prefixed && slices.ContainsFunc(listed, func(t *mcp.Tool) bool {
		return strings.HasPrefix(t.Name, server+"__")
	}))
}

// incomplete prints the servers whose items are missing in the last list. It returns an error unless all of them
// only require a login.
func reportIncomplete(f *factory) error {
	m := f.Client.missing.Load()
	if m == nil || f.Observe.completing {
		return nil
	}
	var starting, failed, login []string
	for _, s := range m.Servers {
		switch name := shorten(cleanLine(s.Server), maxNameShown); s.Code {
		case "starting":
			starting = append(starting, name)
		case "auth_required":
			login = append(login, name)
		default:
			failed = append(failed, name+" ("+shorten(cleanLine(s.Code), maxNameShown)+")")
		}
	}
	show := func(count int, what string, names []string) {
		if count > 0 {
			text := strings.Join(names, ", ")
			if len(names) < count {
				text += fmt.Sprintf(" and %d more", count-len(names))
			}
			f.IO.Err.printf("patchbay: the list is not complete: %d of %d servers %s: %s", count, m.Of, what, text)
		}
	}
	show(m.Starting, "are still starting", starting)
	show(m.Failed-len(login), "have failed", failed)
	show(len(login), "require a login", login)
	if m.Starting+m.Failed <= len(login) {
		return nil
	}
	return &coded{exitIncomplete, errShown}
}
