package mcphttp_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Slow and plain forms of what the package does itself, for fuzz targets.

func stdBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func isJSONNumber(s string) bool {
	return json.Valid([]byte(s)) && strings.Trim(s, " \t\r\n") == s && strings.ContainsAny(s[:1], "-0123456789")
}
