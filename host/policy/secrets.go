package policy

import (
	"regexp"
	"strings"
	"sync"
)

// A secretPattern matches a form of secrets with a fixed mark, so that other texts rarely match.
type secretPattern struct {
	mark  string // that every match contains, for a fast search; in lower case if it ignores case
	match func() *regexp.Regexp
}

// lazy returns a function that compiles an expression when it is first called: all of them take 4 ms, which each
// start of a program would cost.
func lazy(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}

// secretPatterns are the forms that issuers document, as scanners of repositories use them: with a
// prefix of their own. Texts that only look random are not removed, since ids and digests do too.
var secretPatterns = []secretPattern{
	{"PRIVATE KEY", lazy(`-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----` +
		`[\s\S]*?(-----END [A-Z ]*PRIVATE KEY( BLOCK)?-----|$)`)},
	{"AGE-SECRET-KEY-1", lazy(`AGE-SECRET-KEY-1[0-9A-Z]{58}`)},
	{"KIA", lazy(`\b(AKIA|SKIA)[A-Z2-7]{16}\b`)},
	{"SIA", lazy(`\bASIA[A-Z2-7]{16}\b`)},
	{"AIza", lazy(`\bAIza[0-9A-Za-z_-]{35}`)},
	{"ya29.", lazy(`\bya29\.[0-9A-Za-z_-]{20,}`)},
	{"GOCSPX-", lazy(`\bGOCSPX-[0-9A-Za-z_-]{28}`)},
	{"gh", lazy(`\bgh[oprsu]_[0-9A-Za-z]{36,255}`)},
	{"github_pat_", lazy(`\bgithub_pat_[0-9A-Za-z_]{60,255}`)},
	{"gl", lazy(`\bgl(pat|ptt|dt|rt|cbt|oas|imt|soat|agent|ft)-[0-9A-Za-z_.-]{20,}`)},
	{"xox", lazy(`\bxox[abeoprs](\.xox[a-z])?-[0-9A-Za-z-]{10,}`)},
	{"xapp-", lazy(`\bxapp-\d-[0-9A-Z]+-\d+-[0-9a-f]+`)},
	{"hooks.slack.com/", lazy(
		`https://hooks\.slack\.com/(services|workflows|triggers)/[0-9A-Za-z+/_-]{20,}`)},
	{"sk-", lazy(`\bsk-(ant-|proj-|svcacct-|admin-|or-v1-)?[0-9A-Za-z_-]{20,}`)},
	{"_live_", lazy(`\b(sk|rk|pk)_live_[0-9A-Za-z]{10,99}`)},
	{"whsec_", lazy(`\bwhsec_[0-9A-Za-z+/=]{24,}`)},
	{"hf_", lazy(`\bhf_[A-Za-z]{34}\b`)},
	{"npm_", lazy(`\bnpm_[0-9A-Za-z]{36}\b`)},
	{"pypi-AgE", lazy(`\bpypi-AgE[0-9A-Za-z_-]{50,}`)},
	{"SG.", lazy(`\bSG\.[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{30,64}`)},
	{"do", lazy(`\bdo[opr]_v1_[0-9a-f]{64}\b`)},
	{"shp", lazy(`\bshp(at|ca|pa|ss)_[0-9a-fA-F]{32}\b`)},
	{"hv", lazy(`\bhv[bs]\.[0-9A-Za-z_-]{24,}`)},
	{"dapi", lazy(`\bdapi[0-9a-f]{32}\b`)},
	{"lin_api_", lazy(`\blin_api_[0-9A-Za-z]{40}\b`)},
	{"eyJ", lazy(`\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]*`)}, // JWT
	{"AccountKey=", lazy(`AccountKey=[0-9A-Za-z+/]{60,}={0,2}`)},
	{"://", lazy(`\b([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@"']*):[^\s/@"']+@`)}, // password of a URL
}

// bearer is the value of a header with a token; the scheme contains letters of any case.
var bearer = lazy(`(?i)\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?` +
	`(?:bearer|basic|token)\s+)[0-9A-Za-z._~+/=-]{8,}`)

// RedactSecrets returns a text with a replacement in place of each secret in a form that its issuer
// documents, such as a private key or a token. The replacement must not contain $.
func RedactSecrets(text, replacement string) string {
	for i := range secretPatterns {
		p := &secretPatterns[i]
		switch {
		case !strings.Contains(text, p.mark):
		case p.mark == "://":
			text = p.match().ReplaceAllString(text, "$1:"+replacement+"@")
		default:
			text = p.match().ReplaceAllString(text, replacement)
		}
	}
	if containsFold(text, "authorization") {
		text = bearer().ReplaceAllString(text, "${1}"+replacement)
	}
	return text
}

// containsFold reports whether a text contains a word of lower-case ASCII letters, in any case.
func containsFold(text, word string) bool {
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i]|0x20 == word[0] && strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}
