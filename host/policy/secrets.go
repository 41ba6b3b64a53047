package policy

import (
	"regexp"
	"strings"
)

// A secretPattern matches a form of secrets with a fixed mark, so that other texts rarely match.
type secretPattern struct {
	mark  string // that every match contains, for a fast search; in lower case if it ignores case
	match *regexp.Regexp
}

// secretPatterns are the forms that issuers document, as scanners of repositories use them: with a
// prefix of their own. Texts that only look random are not removed, since ids and digests do too.
var secretPatterns = []secretPattern{
	{"PRIVATE KEY", regexp.MustCompile(`-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----` +
		`[\s\S]*?(-----END [A-Z ]*PRIVATE KEY( BLOCK)?-----|$)`)},
	{"AGE-SECRET-KEY-1", regexp.MustCompile(`AGE-SECRET-KEY-1[0-9A-Z]{58}`)},
	{"KIA", regexp.MustCompile(`\b(AKIA|SKIA)[A-Z2-7]{16}\b`)},
	{"SIA", regexp.MustCompile(`\bASIA[A-Z2-7]{16}\b`)},
	{"AIza", regexp.MustCompile(`\bAIza[0-9A-Za-z_-]{35}`)},
	{"ya29.", regexp.MustCompile(`\bya29\.[0-9A-Za-z_-]{20,}`)},
	{"GOCSPX-", regexp.MustCompile(`\bGOCSPX-[0-9A-Za-z_-]{28}`)},
	{"gh", regexp.MustCompile(`\bgh[oprsu]_[0-9A-Za-z]{36,255}`)},
	{"github_pat_", regexp.MustCompile(`\bgithub_pat_[0-9A-Za-z_]{60,255}`)},
	{"gl", regexp.MustCompile(`\bgl(pat|ptt|dt|rt|cbt|oas|imt|soat|agent|ft)-[0-9A-Za-z_.-]{20,}`)},
	{"xox", regexp.MustCompile(`\bxox[abeoprs](\.xox[a-z])?-[0-9A-Za-z-]{10,}`)},
	{"xapp-", regexp.MustCompile(`\bxapp-\d-[0-9A-Z]+-\d+-[0-9a-f]+`)},
	{"hooks.slack.com/", regexp.MustCompile(
		`https://hooks\.slack\.com/(services|workflows|triggers)/[0-9A-Za-z+/_-]{20,}`)},
	{"sk-", regexp.MustCompile(`\bsk-(ant-|proj-|svcacct-|admin-|or-v1-)?[0-9A-Za-z_-]{20,}`)},
	{"_live_", regexp.MustCompile(`\b(sk|rk|pk)_live_[0-9A-Za-z]{10,99}`)},
	{"whsec_", regexp.MustCompile(`\bwhsec_[0-9A-Za-z+/=]{24,}`)},
	{"hf_", regexp.MustCompile(`\bhf_[A-Za-z]{34}\b`)},
	{"npm_", regexp.MustCompile(`\bnpm_[0-9A-Za-z]{36}\b`)},
	{"pypi-AgE", regexp.MustCompile(`\bpypi-AgE[0-9A-Za-z_-]{50,}`)},
	{"SG.", regexp.MustCompile(`\bSG\.[0-9A-Za-z_-]{16,32}\.[0-9A-Za-z_-]{30,64}`)},
	{"do", regexp.MustCompile(`\bdo[opr]_v1_[0-9a-f]{64}\b`)},
	{"shp", regexp.MustCompile(`\bshp(at|ca|pa|ss)_[0-9a-fA-F]{32}\b`)},
	{"hv", regexp.MustCompile(`\bhv[bs]\.[0-9A-Za-z_-]{24,}`)},
	{"dapi", regexp.MustCompile(`\bdapi[0-9a-f]{32}\b`)},
	{"lin_api_", regexp.MustCompile(`\blin_api_[0-9A-Za-z]{40}\b`)},
	{"eyJ", regexp.MustCompile(`\beyJ[0-9A-Za-z_-]{10,}\.eyJ[0-9A-Za-z_-]{10,}\.[0-9A-Za-z_-]*`)}, // JWT
	{"AccountKey=", regexp.MustCompile(`AccountKey=[0-9A-Za-z+/]{60,}={0,2}`)},
	{"://", regexp.MustCompile(`\b([a-zA-Z][a-zA-Z0-9+.-]*://[^\s/:@"']*):[^\s/@"']+@`)}, // password of a URL
}

// bearer is the value of a header with a token; the scheme contains letters of any case.
var bearer = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization["']?\s*[:=]\s*["']?` +
	`(?:bearer|basic|token)\s+)[0-9A-Za-z._~+/=-]{8,}`)

// RedactSecrets returns a text with a replacement in place of each secret in a form that its issuer
// documents, such as a private key or a token. The replacement must not contain $.
func RedactSecrets(text, replacement string) string {
	for i := range secretPatterns {
		p := &secretPatterns[i]
		switch {
		case !strings.Contains(text, p.mark):
		case p.mark == "://":
			text = p.match.ReplaceAllString(text, "$1:"+replacement+"@")
		default:
			text = p.match.ReplaceAllString(text, replacement)
		}
	}
	if containsFold(text, "authorization") {
		text = bearer.ReplaceAllString(text, "${1}"+replacement)
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
