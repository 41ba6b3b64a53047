package mcphttp_test

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Reference implementations for fuzz tests.

func stdBase64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func isJSONNumber(s string) bool {
	return json.Valid([]byte(s)) && strings.Trim(s, " \t\r\n") == s && strings.ContainsAny(s[:1], "-0123456789")
}
