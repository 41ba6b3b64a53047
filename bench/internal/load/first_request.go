package load

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
)

// FirstRequest returns the first message of a client of an era.
func FirstRequest(era echo.Era) []byte {
	if era == echo.Session {
		return bytes.Clone(initialize)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{"_meta":{%s}}}`,
		Call{Era: era}.meta())
}

// CheckFirstResponse returns an error unless answer is a correct response to FirstRequest.
func CheckFirstResponse(era echo.Era, answer []byte) error {
	if era == echo.Session {
		return checkInitialized(answer)
	}
	var m struct {
		Result struct {
			Versions []string `json:"supportedVersions"`
		} `json:"result"`
	}
	if err := json.Unmarshal(answer, &m); err != nil {
		return fmt.Errorf("server/discover: %w", err)
	}
	if !slices.Contains(m.Result.Versions, era.Revision()) {
		return errors.New("server/discover: server does not support " + era.Revision())
	}
	return nil
}
