"""An adapter that was fitted before, scored as a method like any other."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from site_interp.adapter import Adapter
from site_interp.baselines.method import Needs
from site_interp.baselines.site import SITE
from site_interp.model import Model
from site_interp.tasks import Labelled


@dataclass(frozen=True)
class SavedSITE:
    """SITE without its fit: the adapter is what it is, whatever it was fitted on.

    Args:
        adapter: From `Adapter.from_pretrained`.
    """

    name: ClassVar[str] = SITE.name
    revision: ClassVar[int] = SITE.revision
    seeded: ClassVar[bool] = True
    needs: ClassVar[Needs] = "nothing"
    adapter: Adapter

    def settings(self) -> Mapping[str, Any]:
        """A hash of the adapter's numbers, and its template."""
        digest = hashlib.sha256()
        for values in (self.adapter.embedding.mean, self.adapter.selection.logits):
            digest.update(values.numpy().tobytes())
        return {"adapter": digest.hexdigest(), "template": self.adapter.template.to_dict()}

    def variant(self) -> str:
        """The task it was fitted on and the hash of its numbers, since there may be many."""
        return f"adapter={self.settings()['adapter'][:8]},fitted_on={self.adapter.embedding.task}"

    def fit(self, model: Model, labelled: Labelled, seed: int) -> Adapter:
        """Nothing is fitted, and no answer looked at.

        Raises:
            UserError: An adapter of another model.
        """
        self.adapter.check_model(model)
        return self.adapter
