"""Models of TensorFlow and Keras, each in a folder of its own: ``python3 -I -S tensorflow_models.py PACKAGES FOLDER``.
Nothing here imports this project: it runs where TensorFlow is."""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FROZEN = 4


def main(packages: str, target: str) -> None:
    sys.path.insert(0, packages)
    import keras

    (Path(target) / "known.json").write_text(json.dumps({"operators": _operators(), "layers": dir(keras.layers)}))
    for name, make in MODELS.items():
        keras.utils.set_random_seed(len(name))
        folder = Path(target) / name
        folder.mkdir(parents=True)
        make(folder)


def perceptron(folder: Path) -> None:
    _perceptron().export(folder / "model")


def images(folder: Path) -> None:
    from keras import Sequential, layers

    Sequential([layers.Input((16, 16, 3), name="image"), layers.Conv2D(8, 3, strides=2, padding="same"),
                layers.BatchNormalization(), layers.ReLU(), layers.DepthwiseConv2D(3, padding="same"),
                layers.GlobalAveragePooling2D(), layers.Dense(4)]).export(folder / "model")


def recurrent(folder: Path) -> None:
    from keras import Sequential, layers

    Sequential([layers.Input((12,), dtype="int32", name="ids"), layers.Embedding(50, 16), layers.LSTM(8),
                layers.Dense(4)]).export(folder / "model")


def frozen(folder: Path) -> None:
    import tensorflow as tf

    weight = tf.Variable(tf.random.normal([16, 8]))
    _save(folder, {"weight": weight}, lambda x: {"y": tf.nn.relu(tf.matmul(x, weight))},
          x=tf.TensorSpec([FROZEN, 16], tf.float32))


def with_state(folder: Path) -> None:
    """A cell whose state and whose gain the client sends."""
    import tensorflow as tf

    taken, kept = tf.Variable(tf.random.normal([16, 8])), tf.Variable(tf.random.normal([8, 8]))

    def step(x: Any, state: Any, gain: Any) -> dict[str, Any]:
        hidden = tf.tanh(tf.matmul(x, taken) * gain + tf.matmul(state[0], kept))
        return {"hidden": hidden, "next": tf.stack([hidden, state[1]])}

    _save(folder, {"taken": taken, "kept": kept}, step, x=tf.TensorSpec([1, 16], tf.float32),
          state=tf.TensorSpec([2, 1, 8], tf.float32), gain=tf.TensorSpec([], tf.float32))


def with_gain(folder: Path) -> None:
    """A batch, and a scalar beside it."""
    import tensorflow as tf

    weight = tf.Variable(tf.random.normal([16, 8]))
    _save(folder, {"weight": weight}, lambda x, gain: {"y": tf.matmul(x, weight) * gain},
          x=tf.TensorSpec([None, 16], tf.float32), gain=tf.TensorSpec([], tf.float32))


def attention(folder: Path) -> None:
    _attention().export(folder / "model")


def tabular(folder: Path) -> None:
    """What Keras keeps beside the weights, and operators that tf2onnx has not."""
    import keras
    import numpy as np
    from keras import layers

    normalised = layers.Normalization()
    normalised.adapt(np.random.default_rng(0).normal(3.0, 2.0, (32, 6)).astype(np.float32))
    x = layers.Input((6,), name="x")
    hidden = layers.Dense(16, activation="gelu")(normalised(x))
    grown = keras.ops.expm1(hidden) - keras.ops.log1p(keras.ops.abs(hidden))
    keras.Model(x, layers.Dense(1, activation="sigmoid")(grown)).export(folder / "model")


def sounds(folder: Path) -> None:
    """A spectrum of frames that are shorter than the transform, and one of which real and imaginary parts are read."""
    import tensorflow as tf

    def heard(sound: Any) -> dict[str, Any]:
        short, long = tf.signal.stft(sound, 160, 80), tf.signal.stft(sound, 160, 80, 128)
        parts = tf.concat([tf.math.real(long), tf.math.imag(long)], -1)
        return {"loud": tf.math.log1p(tf.abs(short)), "parts": tf.reduce_mean(parts, 1)}

    _save(folder, {}, heard, sound=tf.TensorSpec([None, 800], tf.float32))


def without_signature(folder: Path) -> None:
    import tensorflow as tf

    class Two(tf.Module):  # type: ignore[misc]
        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])  # type: ignore[untyped-decorator]
        def once(self, x: Any) -> Any:
            return x * 2.0

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32)])  # type: ignore[untyped-decorator]
        def twice(self, x: Any) -> Any:
            return x * 4.0

    tf.saved_model.save(Two(), str(folder / "model"))


def reading(folder: Path) -> None:
    import tensorflow as tf

    _save(folder, {}, lambda x: {"y": x + tf.strings.to_number(tf.io.read_file("/etc/hostname"))},
          x=tf.TensorSpec([None, 4], tf.float32))


def words(folder: Path) -> None:
    import tensorflow as tf

    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(
        tf.constant([1, 2], tf.int64), tf.constant([3, 4], tf.int64)), -1)
    _save(folder, {"table": table}, lambda x: {"y": table.lookup(x)}, x=tf.TensorSpec([None, 4], tf.int64))


def random(folder: Path) -> None:
    import tensorflow as tf

    _save(folder, {}, lambda x: {"y": x + tf.random.normal([4])}, x=tf.TensorSpec([None, 4], tf.float32))


def unknown(folder: Path) -> None:
    import tensorflow as tf

    _save(folder, {}, lambda x: {"y": tf.math.lgamma(x)}, x=tf.TensorSpec([None, 4], tf.float32))


def keras_layers(folder: Path) -> None:
    _attention().save(folder / "model.keras")


def keras_lambda(folder: Path) -> None:
    from keras import Sequential, layers

    Sequential([layers.Input((4,)), layers.Lambda(lambda x: x * 2)]).save(folder / "model.keras")


def keras_own_class(folder: Path) -> None:
    import keras

    class Doubled(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 2

    keras.Sequential([keras.layers.Input((4,)), Doubled()]).save(folder / "model.keras")


def keras_pickle(folder: Path) -> None:
    keras_layers(folder)
    with zipfile.ZipFile(folder / "model.keras", "a") as archive:
        archive.writestr("assets/layer.pkl", b"\x80\x04.")


def keras_h5(folder: Path) -> None:
    _perceptron().save(folder / "model.h5")


def _operators() -> list[str]:
    """All that this TensorFlow has."""
    from tensorflow.core.framework import op_def_pb2
    from tensorflow.python.client import pywrap_tf_session

    found = op_def_pb2.OpList()
    found.ParseFromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return [operator.name for operator in found.op]


def _perceptron() -> Any:
    from keras import Sequential, layers

    return Sequential([layers.Input((16,), name="x"), layers.Dense(32, activation="relu"),
                       layers.Dense(8, activation="softmax")])


def _attention() -> Any:
    """Two inputs, one of them a mask, and two outputs, with sums between layers."""
    import keras
    from keras import layers

    ids, mask = layers.Input((12,), dtype="int32", name="ids"), layers.Input((12,), dtype="bool", name="mask")
    embedded = layers.Embedding(50, 16)(ids)
    attended = layers.MultiHeadAttention(2, 8)(embedded, embedded, attention_mask=mask[:, None, :])
    hidden = layers.LayerNormalization()(embedded + attended)
    pooled = keras.ops.mean(hidden, axis=1)
    return keras.Model([ids, mask], {"scores": layers.Dense(4, activation="softmax")(pooled), "pooled": pooled})


def _save(folder: Path, kept: dict[str, Any], function: Callable[..., Any], **specs: Any) -> None:
    import tensorflow as tf

    module = tf.Module()
    for name, variable in kept.items():
        setattr(module, name, variable)
    traced = tf.function(function).get_concrete_function(**specs)
    tf.saved_model.save(module, str(folder / "model"), signatures=traced)


MODELS: dict[str, Callable[[Path], None]] = {make.__name__: make for make in (
    perceptron, images, recurrent, frozen, with_state, with_gain, attention, tabular, sounds, without_signature,
    reading, words, random, unknown, keras_layers, keras_lambda, keras_own_class, keras_pickle, keras_h5)}

if __name__ == "__main__":
    main(*sys.argv[1:])
