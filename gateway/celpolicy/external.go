package celpolicy

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

const (
	// externalTime is how long a hook may take: a caller waits for it.
	externalTime = 2 * time.Second
	// outputPart is the share of externalTime, 100 ms, in which the output of a command must be
	// read after the command ended.
	outputPart = 20
	// maxAnswer bounds the answer of a hook or a webhook, in bytes.
	maxAnswer = 64 << 10
)

// An external is a program that decides.
type external struct {
	url     string
	command []string
	key     []byte
	limit   time.Duration // externalTime, more in tests
	unused  bool          // see Options.NoHook
}

func newExternal(given *gatewayconfig.PolicyHook, lookup func(string) (string, bool)) (*external, error) {
	if given == nil {
		return nil, nil
	}
	h := &external{url: given.URL, command: given.Command, limit: externalTime}
	if h.url == "" {
		return h, nil
	}
	key, err := signingKey(given.Secret, lookup)
	h.key = key
	return h, err
}

// minKey is the length of the shortest key that signs requests, in bytes.
const minKey = 16

func signingKey(name string, lookup func(string) (string, bool)) ([]byte, error) {
	key, ok := lookup(name)
	if !ok || len(key) < minKey {
		return nil, fmt.Errorf("the variable %s has %d bytes, want at least %d: it signs requests", name, len(key),
			minKey)
	}
	return []byte(key), nil
}

// An externalRequest is the request that a hook receives.
type externalRequest struct {
	Kind       policy.ActionKind `json:"kind"`
	Method     string            `json:"method"`
	Caller     map[string]any    `json:"caller"`
	Server     string            `json:"server"`
	Target     string            `json:"target"`
	Definition json.RawMessage   `json:"definition,omitempty"`
	Arguments  json.RawMessage   `json:"arguments,omitempty"`
	Result     json.RawMessage   `json:"result,omitempty"`
	Question   json.RawMessage   `json:"question,omitempty"`
	Recent     []string          `json:"recent,omitempty"`
}

// An externalAnswer is the response of a hook.
type externalAnswer struct {
	Do     string `json:"do"`
	Reason string `json:"reason"`
	Via    string `json:"via"`
}

// decide sets the decision of the hook. If it fails, the action is denied and undecided.
func (h *external) decide(ctx context.Context, a *policy.Action, d *policy.Decision) {
	d.Do = policy.OutcomeDeny
	if h.unused {
		d.Reason = "the hook of the policy decides, and was not asked"
		return
	}
	ctx, cancel := context.WithTimeout(ctx, h.limit)
	defer cancel()
	text, err := json.Marshal(externalRequest{a.Kind, a.Method, callerValue(a.Caller), a.Server, a.Target, a.Definition,
		a.Arguments, a.Result, a.Question, a.Recent})
	var out []byte
	switch {
	case err != nil:
	case h.url != "":
		out, err = post(ctx, h.url, h.key, text)
	default:
		out, err = run(ctx, h.command, text, h.limit/outputPart)
	}
	var answer externalAnswer
	if err == nil {
		err = json.Unmarshal(out, &answer)
	}
	do, known := outcomes[answer.Do]
	if isRequest := slices.Contains(requests, a.Kind); err == nil && (!known || answer.Do == "" ||
		do == policy.OutcomeHide || do == policy.OutcomeAsk && !isRequest) {
		err = fmt.Errorf("invalid answer %.64q", answer.Do)
	}
	if err != nil {
		d.Undecided, d.Reason = true, "the hook of the policy has failed"
		if errors.Is(err, errUnsigned) || errors.Is(err, errSkew) {
			d.Reason += ": " + err.Error()
		}
		return
	}
	d.Do, d.Channel = do, policy.Channel(answer.Via)
	if answer.Reason != "" {
		d.Reason = answer.Reason
	}
}

// Header is the name of the header that contains the signature of a request and of its response:
// "t=TIME,v1=MAC". TIME is the time in seconds since 1970, and MAC is an HMAC-SHA-256 in
// hexadecimal digits. The MAC of a request covers TIME, a dot and the body. The MAC of a response
// with status 200 covers TIME, a dot, the MAC of the request, a dot and the body.
const Header = "Patchbay-Signature"

var (
	errUnsigned = errors.New("the response has no valid " + Header)
	errSkew     = errors.New("the time of the signed response is more than 5 minutes from the time of the gateway")
)

// maxSkew limits the difference between the time of a signed response and the time of this machine.
const maxSkew = 5 * time.Minute

// sign returns the MAC of texts, joined with dots.
func sign(key []byte, texts ...string) string {
	mac := hmac.New(sha256.New, key)
	_, _ = io.WriteString(mac, strings.Join(texts, "."))
	return hex.EncodeToString(mac.Sum(nil))
}

// verify checks the signature of a response. request is the MAC of the request that it answers.
// Without a signature, anyone between the gateway and the program could decide.
func verify(key []byte, signature, request string, body []byte) error {
	t, mac, _ := strings.Cut(strings.TrimPrefix(signature, "t="), ",v1=")
	at, err := strconv.ParseInt(t, 10, 64)
	switch {
	case err != nil || !hmac.Equal([]byte(mac), []byte(sign(key, t, request, string(body)))):
		return errUnsigned
	case time.Since(time.Unix(at, 0)).Abs() > maxSkew:
		return errSkew
	}
	return nil
}

// post sends a signed request and returns the body of the response, after it verified the
// signature. It rejects redirects.
func post(ctx context.Context, url string, key, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	now := strconv.FormatInt(time.Now().Unix(), 10)
	mac := sign(key, now, string(body))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(Header, "t="+now+",v1="+mac)
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	out, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, err
	case res.StatusCode == http.StatusAccepted || res.StatusCode == http.StatusNoContent:
		return nil, nil
	case res.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("HTTP %d", res.StatusCode)
	case len(out) > maxAnswer:
		return nil, fmt.Errorf("the response has more than %d bytes", maxAnswer)
	}
	return out, verify(key, res.Header.Get(Header), mac, out)
}

// run runs a command with a text on its standard input, and returns its standard output. It reads
// the output for at most delay after the end of the command, because child processes may keep it
// open.
func run(ctx context.Context, command []string, text []byte, delay time.Duration) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...) //nolint:gosec // of the operator's configuration
	cmd.Stdin = bytes.NewReader(text)
	cmd.WaitDelay = delay
	var out limited
	cmd.Stdout = &out
	err := cmd.Run()
	return out.Bytes(), err
}

// A limited is a buffer that refuses more than maxAnswer bytes.
type limited struct{ bytes.Buffer }

// Write adds to the buffer.
func (l *limited) Write(b []byte) (int, error) {
	if l.Len()+len(b) > maxAnswer {
		return 0, errors.New("the output is too long")
	}
	return l.Buffer.Write(b)
}

// Webhook returns the function for [host.Options].Webhook of a configuration. The URL receives the
// [approval.Pending] as JSON, signed as [Header] describes. The response must be signed and contain
// one of the answers of the request, such as {"decision": "once"}; the status 202 or 204 means that
// others decide. lookup returns the key whose name the configuration contains.
func Webhook(
	given *gatewayconfig.Webhook, lookup func(name string) (string, bool),
) (func(ctx context.Context, p *approval.Pending) (approval.Answer, error), error) {
	key, err := signingKey(given.Secret, lookup)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, p *approval.Pending) (approval.Answer, error) {
		text, err := json.Marshal(p)
		if err != nil {
			return "", err
		}
		out, err := post(ctx, given.URL, key, text)
		if err != nil || out == nil {
			return "", err
		}
		var answer struct {
			Decision approval.Answer `json:"decision"`
		}
		err = json.Unmarshal(out, &answer)
		return answer.Decision, err
	}, nil
}
