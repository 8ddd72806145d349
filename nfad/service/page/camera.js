// Photos from a camera of this device. Browsers give one only to pages of this machine or over HTTPS.

import { byId, el } from "./dom.js";

const WANTED = { width: { ideal: 1920 }, height: { ideal: 1080 } };

export function camera(station, taken) {
  const [button, panel, video, device] = ["camera-button", "camera", "video", "device"].map(byId);
  let stream = null;
  let count = 0;

  const cameras = async () =>
    (await navigator.mediaDevices.enumerateDevices()).filter(each => each.kind === "videoinput");
  const offer = async () => {
    button.hidden = !navigator.mediaDevices || !(await cameras()).length;
  };

  async function open(id) {
    close();
    try {
      const which = id ? { deviceId: { exact: id } } : { facingMode: "environment" };
      stream = await navigator.mediaDevices.getUserMedia({ video: { ...WANTED, ...which } });
    } catch (error) {
      station.fail(new Error(`The camera cannot be used (${error.name}); allow it for this page, or choose a file.`));
      return;
    }
    video.srcObject = stream;
    panel.hidden = false;
    byId("inspect").classList.add("busy"); // the picture needs the room
    const known = await cameras(); // they have names only after leave was given
    const inUse = stream?.getVideoTracks()[0]?.getSettings().deviceId;
    device.replaceChildren(
      ...known.map((each, at) =>
        el("option", { value: each.deviceId, selected: each.deviceId === inUse }, each.label || `Camera ${at + 1}`),
      ),
    );
    byId("device-label").hidden = known.length < 2;
    byId("shoot").focus();
  }

  function close() {
    stream?.getTracks().forEach(track => track.stop());
    stream = null;
    video.srcObject = null;
    panel.hidden = true;
  }

  async function shoot() {
    if (!video.videoWidth) return; // nothing seen yet
    const canvas = new OffscreenCanvas(video.videoWidth, video.videoHeight);
    canvas.getContext("2d").drawImage(video, 0, 0);
    const stamp = new Date().toISOString().slice(0, 19).replace(/[T:]/g, "-");
    const name = `camera-${stamp}-${++count}.png`;
    taken(new File([await canvas.convertToBlob({ type: "image/png" })], name, { type: "image/png" }));
  }

  button.addEventListener("click", () => open());
  device.addEventListener("change", () => open(device.value));
  byId("shoot").addEventListener("click", shoot);
  byId("camera-close").addEventListener("click", () => {
    close();
    button.focus();
  });
  navigator.mediaDevices?.addEventListener("devicechange", offer);
  offer();
  return { close };
}
