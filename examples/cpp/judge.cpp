// Judge one image with an exported model, without Python: judge FOLDER IMAGE.ppm [KEY]
//
// FOLDER holds model.xml, model.bin and model.json, as `nfad export --to openvino` writes them. All that the model does
// to pixels is inside the graph, so that what is left here is to read a file and compare two numbers. The graph's
// outputs are in docs/deploy.md; `detection_map` and `gate` are among them only if the map has a gate
// (localization="global"), and nothing here needs them.
// The export's seal and the graph's checksums are checked first (seal.hpp); with a file KEY, the signature too.
// Exit code 0: judged, whatever the verdict; 2: something is wrong, told in one sentence; 3: not judged, because the
// photo lies outside of what the model was fitted for. Neither good nor bad.

#include <cmath>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>

#include <openvino/runtime/core.hpp>
#include <openvino/runtime/properties.hpp>

#include "seal.hpp"

namespace fs = std::filesystem;

// A binary PPM (P6, 8 bits) as the graph wants it: uint8 [1, height, width, 3]. Every camera library can write one.
ov::Tensor read_ppm(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error(path.string() + " cannot be opened");

    auto number = [&]() -> std::size_t {
        while ((file >> std::ws).peek() == '#') file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
        std::size_t value = 0;
        file >> value;
        return value;
    };
    std::string magic(2, ' ');
    file.read(magic.data(), 2);
    const std::size_t width = number(), height = number(), most = number();
    file.get();  // the one white space before the pixels
    if (!file || magic != "P6" || most != 255 || width == 0 || height == 0 || width > 20000 || height > 20000)
        throw std::runtime_error(path.string() + " is not a binary PPM with 8 bits a channel");

    ov::Tensor pixels(ov::element::u8, {1, height, width, 3});
    file.read(reinterpret_cast<char*>(pixels.data<std::uint8_t>()), static_cast<std::streamsize>(pixels.get_byte_size()));
    if (static_cast<std::size_t>(file.gcount()) != pixels.get_byte_size())
        throw std::runtime_error(path.string() + " is cut short");
    return pixels;
}

// A number of model.json, by its name. Use a JSON library if you need more than two of them.
double read_number(const fs::path& path, const std::string& name) {
    const std::string quoted = '"' + name + '"';
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    text.imbue(std::locale::classic());  // a decimal point, wherever the program runs
    const auto place = text.str().find(quoted);
    double number = 0;
    char colon = 0;
    if (place == std::string::npos || !text.seekg(place + quoted.size()) || !(text >> colon >> number) || colon != ':')
        throw std::runtime_error(path.string() + " cannot be read, or names no " + name);
    return number;
}

// Before the threshold: every comparison with a score that is no number is false, and would let the part pass. A graph
// without `strangeness` cannot tell what it was not fitted for. A photo a little outside of that is judged only if its
// score is above every held-out normal's; one of another shape, which the graph would stretch, is not.
bool is_judged(ov::CompiledModel& model, ov::InferRequest& request, const fs::path& metadata) {
    const auto sides = request.get_tensor("pixels").get_shape();
    const double ratio = static_cast<double>(sides[2]) / static_cast<double>(sides[1]);
    if (!(ratio >= read_number(metadata, "narrowest") && ratio <= read_number(metadata, "widest"))) return false;
    for (const auto* score : {"score", "unfiltered_score"})
        if (!std::isfinite(request.get_tensor(score).data<float>()[0])) return false;
    for (const auto& output : model.outputs())
        if (output.get_names().count("strangeness")) {
            const float strangeness = request.get_tensor(output).data<float>()[0];
            if (!(strangeness > 1)) return true;
            return strangeness <= 1.5 && request.get_tensor("score").data<float>()[0] > read_number(metadata, "highest");
        }
    return true;
}

int main(int count, char** arguments) try {
    if (count != 3 && count != 4) throw std::runtime_error("usage: judge FOLDER IMAGE.ppm [KEY]");
    const fs::path folder = arguments[1];
    const fs::path graph = folder / "model.xml";
    // Not model.onnx: OpenVINO reads it too, but reduces images without antialiasing, and scores would differ.
    if (!fs::exists(graph)) throw std::runtime_error(graph.string() + " does not exist; export with --to openvino");
    const fs::path metadata = folder / "model.json";
    const double format = read_number(metadata, "format");
    if (format != 5 && format != 6)  // others may mean other things by the same names
        throw std::runtime_error(metadata.string() + " has another format than 5 or 6; export the model again");
    const std::string key = count == 4 ? seal::content(arguments[3]) : "";
    if (count == 4 && key.size() < 16) throw std::runtime_error("the key has fewer than 16 bytes");
    seal::check(folder, key);
    const double threshold = read_number(metadata, "threshold");
    if (!(std::abs(threshold) <= 1e6))  // every part would pass
        throw std::runtime_error(metadata.string() + " has a threshold that no model has; export the model again");

    ov::Core core;
    // The default on newer CPUs is bf16, whose three digits move scores across a threshold.
    auto model = core.compile_model(graph.string(), "CPU", ov::hint::inference_precision(ov::element::f32));
    auto request = model.create_infer_request();
    request.set_tensor("pixels", read_ppm(arguments[2]));
    request.infer();

    const float score = request.get_tensor("score").data<float>()[0];
    const float unfiltered = request.get_tensor("unfiltered_score").data<float>()[0];
    const bool judged = is_judged(model, request, metadata);
    std::cout << (!judged ? "not judged" : score > threshold ? "anomalous" : "normal") << "  score " << score
              << "  threshold " << threshold << "  unfiltered score " << unfiltered << '\n';
    return judged ? 0 : 3;
} catch (const std::exception& error) {
    std::cerr << "judge: " << error.what() << '\n';
    return 2;
}
