package mcphttp

// Codecs that are tested for themselves.
var (
	EncodeHeaderValue = encodeHeaderValue
	DecodeHeaderValue = decodeHeaderValue
	EqualIntegers     = equalIntegers
	EventID           = eventID
	ParseEventID      = parseEventID
	IsJSON            = isJSON
	Accepts           = accepts
	ReadClaimed       = readClaimed
	IsSameOrigin      = isSameOrigin
	SplitHost         = splitHost
	IsLoopbackName    = isLoopbackName
	NewMemoryEvents   = newMemoryEvents
	ErrEventUnknown   = errEventUnknown.err.Message
)
