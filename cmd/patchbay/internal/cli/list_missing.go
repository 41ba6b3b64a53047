package cli

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// metaMissing is the member of `_meta` in which a gateway names the servers whose items a list lacks.
const metaMissing = "dev.patchbay/missing"

// A missingServers says which servers of a gateway a list lacks. It comes from the other side.
type missingServers struct {
	Of       int `json:"of"`
	Starting int `json:"starting"`
	Failed   int `json:"failed"`
	Servers  []struct {
		Server string `json:"server"`
		Code   string `json:"code"`
	} `json:"servers"`
}

// noteMissing keeps what a result of a list says about missing servers.
func (p *program) noteMissing(result mcp.RawResult) {
	p.missing.Store(nil)
	meta, _ := jsonscan.Get(result, "_meta")
	raw, ok := jsonscan.Get(meta, metaMissing)
	m := &missingServers{}
	if ok && json.Unmarshal(raw, m) == nil && m.Starting >= 0 && m.Failed >= 0 && m.Starting+m.Failed > 0 {
		p.missing.Store(m)
	}
}

// incomplete prints which servers the last list lacks. It returns an error if there are any.
func (p *program) incomplete() error {
	m := p.missing.Load()
	if m == nil || p.completing {
		return nil
	}
	var starting, failed []string
	for _, s := range m.Servers {
		if name := shorten(cleanLine(s.Server), maxNameShown); s.Code == "starting" {
			starting = append(starting, name)
		} else {
			failed = append(failed, name+" ("+shorten(cleanLine(s.Code), maxNameShown)+")")
		}
	}
	show := func(count int, what string, names []string) {
		if count > 0 {
			text := strings.Join(names, ", ")
			if len(names) < count {
				text += fmt.Sprintf(" and %d more", count-len(names))
			}
			p.screen.printf("patchbay: the list is not complete: %d of %d servers %s: %s", count, m.Of, what, text)
		}
	}
	show(m.Starting, "are still starting", starting)
	show(m.Failed, "have failed", failed)
	return &coded{exitIncomplete, errShown}
}
