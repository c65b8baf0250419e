from .controlled import Wishes as Wishes, control as control, controlling as controlling
