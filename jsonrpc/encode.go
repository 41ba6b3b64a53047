package jsonrpc

import (
	"strconv"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Append appends the JSON text of m to dst, on a single line and without a line break at its end.
// Raw values must be valid JSON. They are copied unchanged, except that line breaks become spaces.
//
// m and each message of a batch may be of any kind but Invalid. Fields that are not set are
// omitted, also the id of an error that answers no known request.
//
// Spec: schema#jsonrpcerrorresponse.
func Append(dst []byte, m *Message) []byte {
	if m.Batch != nil {
		return appendBatch(dst, m.Batch)
	}
	dst = append(dst, `{"jsonrpc":"2.0"`...)
	if !m.ID.IsZero() {
		dst = append(dst, `,"id":`...)
		dst = append(dst, m.ID.raw...)
	}
	if m.Method != "" {
		dst = append(dst, `,"method":`...)
		dst = jsonscan.AppendQuote(dst, m.Method)
	}
	if m.Params != nil {
		dst = append(dst, `,"params":`...)
		dst = appendLine(dst, m.Params)
	}
	if m.Result != nil {
		dst = append(dst, `,"result":`...)
		dst = appendLine(dst, m.Result)
	}
	if m.Error != nil {
		dst = append(dst, `,"error":`...)
		dst = appendError(dst, m.Error)
	}
	return append(dst, '}')
}

func appendBatch(dst []byte, batch []*Message) []byte {
	dst = append(dst, '[')
	for i, m := range batch {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = Append(dst, m)
	}
	return append(dst, ']')
}

func appendError(dst []byte, err *Error) []byte {
	dst = append(dst, `{"code":`...)
	dst = strconv.AppendInt(dst, int64(err.Code), 10)
	dst = append(dst, `,"message":`...)
	dst = jsonscan.AppendQuote(dst, err.Message)
	if len(err.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = appendLine(dst, err.Data)
	}
	return append(dst, '}')
}

// appendLine appends JSON text as a single line.
func appendLine(dst, raw []byte) []byte {
	start := len(dst)
	dst = append(dst, raw...)
	jsonscan.OneLine(dst[start:])
	return dst
}
