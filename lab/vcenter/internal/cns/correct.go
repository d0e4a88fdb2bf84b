package cns

import (
	"bytes"
	"net/http"

	"github.com/vmware/govmomi/vim25"
)

// Correct corrects the answers of vim25 that hold results of CNS tasks. govmomi's types write them differently from vCenter:
// the backing of a volume without xsi:type, so that a client cannot tell its kind; empty elements for what there is not,
// where vCenter leaves them out; and the inherited fields of one fault in an element of their own. The property
// collector copies every value into these types, so only the finished text can be put right.
func (m *Manager) Correct(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == vim25.Path {
			w = &correctingWriter{w, namesVim(r)}
		}
		next.ServeHTTP(w, r)
	})
}

// correctingWriter relies on the simulator to write an answer in one piece.
type correctingWriter struct {
	http.ResponseWriter
	vim bool // the request names no version that has the types of CNS
}

// Write writes the corrected text; the caller's count is that of its own.
func (w *correctingWriter) Write(text []byte) (int, error) {
	corrected := correct(text)
	if w.vim {
		corrected = widen(corrected)
	}
	if _, err := w.ResponseWriter.Write(corrected); err != nil {
		return 0, err
	}
	return len(text), nil
}

// Unwrap lets http.ResponseController reach the real writer.
func (w *correctingWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// correct works on tags only, which cannot be part of a value: there, < is written as &lt;.
func correct(text []byte) []byte {
	text = edit(text, "<backingObjectDetails>", "</backingObjectDetails>", func(inner []byte) string {
		kind := "CnsBlockBackingDetails"
		if bytes.Contains(inner, []byte("<backingFileId>")) {
			kind = "CnsVsanFileShareBackingDetails"
		}
		return `<backingObjectDetails xsi:type="` + kind + `">` + string(inner) + "</backingObjectDetails>"
	})
	text = bytes.ReplaceAll(text, []byte("<volumeId><id></id></volumeId>"), nil)
	text = edit(text, "<snapshot><snapshotId><id></id></snapshotId>", "</snapshot>", func([]byte) string { return "" })
	return edit(text, `:type="CnsAlreadyRegisteredFault">`, "</fault>", func(inner []byte) string {
		_, fields, nested := bytes.Cut(inner, []byte(">"))
		if !nested || !bytes.HasPrefix(inner, []byte("<fault ")) {
			return `:type="CnsAlreadyRegisteredFault">` + string(inner) + "</fault>"
		}
		return `:type="CnsAlreadyRegisteredFault">` + string(fields)
	})
}

// edit replaces every stretch from an opening to the next closing text.
func edit(text []byte, from, to string, replace func(inner []byte) string) []byte {
	if !bytes.Contains(text, []byte(from)) {
		return text
	}
	var edited bytes.Buffer
	for {
		before, rest, found := bytes.Cut(text, []byte(from))
		inner, after, closed := bytes.Cut(rest, []byte(to))
		if !found || !closed {
			edited.Write(text)
			return edited.Bytes()
		}
		edited.Write(before)
		edited.WriteString(replace(inner))
		text = after
	}
}
