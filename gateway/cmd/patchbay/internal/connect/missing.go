package connect

import (
	"encoding/json"

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
func (d *Dialer) noteMissing(page mcp.RawResult, isFirst bool) {
	if isFirst {
		d.Missing.Store(nil)
	}
	meta, _ := rawjson.Get(page, "_meta")
	raw, ok := rawjson.Get(meta, metaMissing)
	m := &missingServers{}
	if ok && json.Unmarshal(raw, m) == nil && m.Starting >= 0 && m.Failed >= 0 && m.Starting+m.Failed > 0 {
		d.Missing.Store(m)
	}
}
