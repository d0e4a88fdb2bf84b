package cns

import (
	"testing"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/property"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

func TestTheResultOfATaskIsEmptyInTheNameOfVim25(t *testing.T) {
	l := newLab(t, options{})
	task, err := l.create(l.blockSpec("a", 1024))
	l.result(task, err) // in the name of vSAN it is there
	var read mo.Task
	l.must(property.DefaultCollector(l.vim.Client).RetrieveOne(l.ctx, task.Reference(), []string{"info"}, &read))
	if _, empty := read.Info.Result.(types.DynamicData); !empty {
		t.Errorf("the result is %T", read.Info.Result)
	}
	info, err := object.NewTask(l.vim.Client, task.Reference()).WaitForResult(l.ctx)
	if err != nil || info.State != types.TaskInfoStateSuccess {
		t.Errorf("waiting gave %+v, %v", info, err)
	}
}

func TestValuesAreWidenedWithWhatIsInside(t *testing.T) {
	for given, want := range map[string]string{
		`<a><result x:type="CnsB"><result x:type="CnsC">1</result><d/></result><e/></a>`:                              `<a><result x:type="DynamicData"></result><e/></a>`,
		`<error><fault x:type="CnsFault"><faultCause><fault/></faultCause><reason>r</reason></fault><m>t</m></error>`: `<error><fault x:type="VimFault"></fault><m>t</m></error>`,
		`<val x:type="CnsB"/><val x:type="xsd:string">:type="Cns</val>`:                                               `<val x:type="DynamicData"/><val x:type="xsd:string">:type="Cns</val>`,
		`<detail><CnsFaultFault x:type="CnsFault"><reason>r</reason></CnsFaultFault></detail>`:                        `<detail><CnsFaultFault x:type="CnsFault"><reason>r</reason></CnsFaultFault></detail>`,
		`<a type="CnsVolumeManager">c</a>`:                                                                            `<a type="CnsVolumeManager">c</a>`,
		`<a x:type="CnsB"><broken`:                                                                                    `<a x:type="CnsB"><broken`,
	} {
		if got := string(widen([]byte(given))); got != want {
			t.Errorf("%s became %s, want %s", given, got, want)
		}
	}
}
