package wire

import "slices"

// String returns the direction as an arrow between client and server, for documents and logs.
func (d Direction) String() string {
	switch d {
	case ClientToServer:
		return "client → server"
	case ServerToClient:
		return "server → client"
	case EitherWay:
		return "either way"
	case InsideResult:
		return "in a result"
	}
	return ""
}

// ReservedMetaKey reports whether any revision reserves the key for the protocol. Applications must
// not use such keys. Before 2025-11-25 any label but the last could reserve a prefix, since then
// only the second can.
func ReservedMetaKey(key string) bool {
	switch key {
	case MetaProgressToken, MetaTraceParent, MetaTraceState, MetaBaggage:
		return true
	}
	return June2025.ReservesMeta(key) || Latest().ReservesMeta(key)
}

// HasMeta reports whether the revision defines the `_meta` key.
func (r Revision) HasMeta(key string) bool {
	return r.known() && slices.Contains(vocabularies()[r].meta, key)
}
